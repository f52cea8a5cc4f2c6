"""The models of a run: what each holds in memory, and what its tokens take of it in floating point operations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from algorithms import ALGORITHMS
from algorithms.costs import TokenCounts, flops
from algorithms.memory import BF16, LORA_BYTES, Memory, activation_bytes, kv_cache_bytes, lora_memory
from algorithms.model_specs import ModelSpec, known_models
from algorithms.spans import Span
from flows.checks.prepared import Prepared
from flows.config import FlowConfig
from flows.counts.lengths import Lengths
from flows.counts.token_spans import TokenSpans
from flows.plan.local_memory import local_memory
from flows.plan.model_size import Sizes, spec_of


@dataclass(frozen=True, slots=True)
class Models:
    """The model that is trained; and the teacher's, where that is another."""

    policy: ModelSpec
    teacher: ModelSpec | None

    def flops(self, tokens: TokenSpans, config: FlowConfig, length: Lengths) -> Span:
        """Floating point operations of so many tokens, attention over the context among them."""
        values = []
        for place, completion in enumerate(length.completion.values):
            context = (length.prompt + completion) / 2  # what a token looks back at, on average
            counts = {kind: span.values[place] for kind, span in tokens.by_kind.items()}
            frozen = tokens.frozen.values[place] if self.teacher else 0.0
            own = TokenCounts(counts["prefill"] - frozen, counts["sampled"], counts["trained"])
            total = flops(own, self.policy, rank=config.lora.rank, context=context)
            if self.teacher:
                total += flops(TokenCounts(scored=frozen), self.teacher, rank=None, context=context)
            values.append(total)
        return Span(*values)

    def read(self) -> Iterator[str]:
        """Where sizes are from that are not those of the table."""
        for spec in (self.policy, self.teacher):
            if spec is not None and spec not in known_models().values():
                yield f"The sizes of {spec.name}: {spec.source}, {spec.total:,} parameters."

    def own_engine(self, prepared: Prepared) -> bool:
        """Whether the gateway's own engine holds the one model there is."""
        return prepared.config.model.provider == "local" and self.teacher is None

    def memory(self, prepared: Prepared, length: Lengths) -> dict[str, Memory]:
        """Bytes by "provider/model": of our own engine by what its process really holds, else as `gpu_memory`."""
        if self.own_engine(prepared):
            return {f"local/{prepared.config.model.name}": local_memory(prepared, self.policy, length)}
        return self.gpu_memory(prepared, length)

    def gpu_memory(self, prepared: Prepared, length: Lengths) -> dict[str, Memory]:
        """Bytes by "provider/model" as a GPU holds them, with weights in bfloat16.

        As many keys and values as if a cycle's completions were all held at once, each at its longest; activations of
        one sequence at its longest. A reference, or a teacher that is the same model, has no weights of its own: it is
        the base without the adapter, or with another.
        """
        config = prepared.config
        rows = getattr(config, "groups_per_cycle", 0) * getattr(config, "group_size", 0)
        longest = length.longest_prompt + length.completion.most
        held = getattr(config, "groups_per_cycle", 0) * length.prompt + rows * length.completion.most
        policy = lora_memory(
            self.policy.total,
            kv_cache=kv_cache_bytes(self.policy, held),
            activations=activation_bytes(self.policy, longest),
        )
        if "critic" in ALGORITHMS[prepared.algorithm].extra_runs:
            policy = replace(policy, adapter_and_optimizer=2 * LORA_BYTES)
        found = {f"{config.model.provider}/{config.model.name}": policy}
        if self.teacher:
            row = prepared.teacher_capability
            found[f"{row.provider}/{row.model}"] = Memory(weights=BF16 * self.teacher.total)
        return found


def models_of(prepared: Prepared, given: Sizes) -> Models:
    """The sizes of a run's models.

    Args:
        prepared: its checked inputs.
        given: what the reader says of models; it goes before what is known of them.

    Raises:
        ValueError: they are not known; the message says how to give them.
    """
    config, row, teacher = prepared.config, prepared.capability, prepared.teacher_capability
    policy = spec_of(config.model, given)
    if (teacher.provider, teacher.model) == (row.provider, row.model):
        return Models(policy, None)
    other = {"name": teacher.model, "provider": teacher.provider, "tokenizer": None}  # the folder is the policy's
    return Models(policy, spec_of(config.model.model_copy(update=other), given))


def all_of(parts: Mapping[str, Memory]) -> Memory:
    """All models at once."""
    total = Memory(0)
    for part in parts.values():
        total = Memory(
            total.weights + part.weights,
            total.adapter_and_optimizer + part.adapter_and_optimizer,
            total.kv_cache + part.kv_cache,
            total.activations + part.activations,
            total.process + part.process,
        )
    return total
