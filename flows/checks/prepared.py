"""A run's checked inputs: examples, tokens, rewards, and what the provider can do. No session, no cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from algorithms import ALGORITHMS
from flows.config import FlowConfig
from tasks import data as data_sets
from tasks.data import DataSet, Example
from tasks.provenance import provenance
from tasks.rendering import Renderer
from whitney.types import CapabilityRow


class Prepared:
    """What a flow draws its batches and requests from. No `__dict__`, as everything that Prefect may be handed."""

    __slots__ = (
        "algorithm",
        "capability",
        "config",
        "data",
        "evaluation_rewards",
        "lengths",
        "renderer",
        "rewards",
        "teacher_capability",
    )

    def __init__(
        self,
        algorithm: str,
        config: FlowConfig,
        data: DataSet,
        renderer: Renderer,
        *,
        capability: CapabilityRow,
        teacher_capability: CapabilityRow | None = None,
    ) -> None:
        self.algorithm = algorithm
        self.config = config
        self.data = data
        self.renderer = renderer
        self.capability = capability
        self.teacher_capability = teacher_capability or capability
        self.rewards = config.reward_terms()
        self.evaluation_rewards = config.evaluation_terms()
        # By what is measured, and the example, which the data keep: what a plan has tokenized, and asks for again.
        self.lengths: dict[tuple[str, int], int] = {}

    @property
    def context_tokens(self) -> int:
        """The longest sequence the provider takes for this model."""
        return self.capability.max_sequence_tokens

    @property
    def teacher_context_tokens(self) -> int:
        """The longest sequence the teacher's model takes."""
        return self.teacher_capability.max_sequence_tokens

    @property
    def heldout(self) -> Sequence[Example]:
        """The examples that are measured and never trained on."""
        return self.data.heldout[: self.config.evaluation.max_prompts]

    def batch(self, cycle: int, size: int) -> list[Example]:
        """The training examples of a cycle: a function of the cycle alone, so a resumed run needs no cursor."""
        return data_sets.batch(self.data, cycle, size, self.config.seed)

    def example_at(self, position: int) -> Example:
        """The training example at a place in the endless sequence of shuffled epochs that `batch` cuts into cycles."""
        return data_sets.batch(self.data, position, 1, self.config.seed)[0]

    def pairs(self, examples: Sequence[Example]) -> list[tuple[list[int], list[int]]]:
        """(prompt tokens, answer tokens with the stop token) of examples that have an answer."""
        return [
            (self.renderer.prompt_tokens(example), self.renderer.completion_tokens(example.answer))
            for example in examples
            if example.answer is not None
        ]

    def sample_request(
        self, example: Example, *, num_samples: int, temperature: float, seed: int
    ) -> dict[str, Any] | None:
        """The `sample` payload of a prompt, its length capped at the context left; None when nothing is left."""
        prompt = self.renderer.prompt_tokens(example)
        room = self.context_tokens - len(prompt)
        if room < 1:
            return None
        sampling = self.config.sampling
        params: dict[str, Any] = {
            "max_tokens": min(sampling.max_tokens, room),
            "temperature": temperature,
            "top_p": sampling.top_p,
            "seed": seed,
            "stop_token_ids": [] if sampling.ignore_eos else list(self.renderer.stop_token_ids),
        }
        if sampling.top_k is not None:
            params["top_k"] = sampling.top_k
        return {"prompt": {"token_ids": prompt}, "num_samples": num_samples, "sampling_params": params}

    def facts(self) -> dict[str, Any]:
        """What a terminal shows at the start."""
        return {
            "algorithm": self.algorithm,
            "model": self.config.model.name,
            "provider": self.config.model.provider,
            "data": self.data.description,
            "train": len(self.data.train),
            "heldout": len(self.heldout),
            "warnings": [*self.data.warnings, *self.warnings()],
        }

    def warnings(self) -> list[str]:
        """Settings that are allowed and probably not meant."""
        config, sampling, found = self.config, self.config.sampling, []
        plain = sampling.temperature == 1.0 and sampling.top_p == 1.0 and not sampling.top_k
        if ALGORITHMS[self.algorithm].rollouts and not plain:
            found.append(
                f"sampling with temperature {sampling.temperature}, top_p {sampling.top_p}, top_k {sampling.top_k}: "
                "the sampler's log-probs are the model's own at temperature 1, so importance ratios will be off"
            )
        if sampling.ignore_eos:
            found.append("sampling.ignore_eos: no completion ends before max_tokens, so none learns to")
        every = config.evaluation.every
        if config.evaluation.enabled and every is not None and every > config.cycles:
            found.append(
                f"evaluation.every = {every}: more than cycles = {config.cycles}, so nothing is measured between"
            )
        return [*found, *config.warnings()]

    def record(self, flow_run_id: str) -> dict[str, Any]:
        """config.json: the configuration, and where everything came from."""
        return {
            "flow_run_id": flow_run_id,
            "algorithm": self.algorithm,
            "config": self.config.model_dump(mode="json"),
            "data": {"description": self.data.description, "fingerprint": self.data.fingerprint},
            "template_sha256": self.renderer.template_sha256,
            "tokenizer_sha256": self.renderer.tokenizer_sha256,
            "capability": self.capability.model_dump(mode="json"),
            **provenance(),
        }

    def heldout_rows(self) -> list[dict[str, Any]]:
        """heldout.jsonl: what the accuracy was measured on."""
        return [
            {"id": one.id, "messages": list(one.messages), "answer": one.answer, "key": one.key} for one in self.heldout
        ]
