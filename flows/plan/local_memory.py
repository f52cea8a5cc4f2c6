"""What the embedded engine's process holds at most in a run, in bytes."""

from __future__ import annotations

from algorithms import ALGORITHMS
from algorithms.memory import Memory
from algorithms.model_specs import ModelSpec
from flows.checks.prepared import Prepared
from flows.config import DpoConfig
from flows.counts.given_inputs import given_inputs
from flows.counts.lengths import LOOKED_AT, Lengths
from flows.plan.engine_memory import engine_memory
from flows.plan.engine_work import Held


def local_memory(prepared: Prepared, spec: ModelSpec, length: Lengths) -> Memory:
    """The peak of a run on the provider "local"."""
    config, roles = prepared.config, prepared.config.needs(ALGORITHMS[prepared.algorithm]).extra_runs
    size = getattr(config, "group_size", 0)
    begun = config.model.initial_state_id or config.model.initial_artifact_id
    return engine_memory(
        spec,
        Held(
            rank=config.lora.rank,
            trained=2 if "critic" in roles else 1,
            frozen=sum(1 for role in roles if role == "teacher" or (role == "reference" and begun)),
            prompts=getattr(config, "groups_per_cycle", 0) or getattr(config, "batch_size", 0),
            samples=size or _given(prepared),
            prompt=length.prompt,
            longest_prompt=length.longest_prompt,
            completion=length.completion.most if size else _longest_given(prepared),
            sampled=bool(size),
            even=bool(size) and length.completion.exact,
        ),
    )


def _given(prepared: Prepared) -> int:
    """Replies to a prompt of the data."""
    return 2 if isinstance(prepared.config, DpoConfig) else 1


def _longest_given(prepared: Prepared) -> float:
    """Tokens of the longest of them; of a pair their mean."""
    return max(
        given_inputs(prepared, one) / _given(prepared) + 1 - len(prepared.renderer.prompt_tokens(one))
        for one in prepared.data.train[:LOOKED_AT]
    )
