"""A plan as a record: what `whitney plan` shows and prints as JSON, and a run keeps as plan.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import TypeAdapter

from algorithms.memory import Memory
from algorithms.spans import Span, Spans, added, summed
from flows.plan.assumptions import Assumptions
from flows.plan.bill import Bill
from flows.plan.gold import Gold
from flows.plan.samples import Sample

OF_A_STAGE = ("completion_tokens", "completion_tokens_source", "earlier_run")
"""Assumptions that each stage of a pipeline has for itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A run as it is planned, measurements and export included.

    Args:
        algorithm: its name; of a pipeline "pipeline".
        title: what is trained, in a line.
        operations: by the wire's names.
        tokens: "prefill", "sampled", "trained", as the ledger counts them.
        flops: floating point operations; null where a model's sizes are not known.
        memory: bytes of all models at once, null as for `flops`; of a pipeline, of its largest stage.
        seconds: on the GPUs that `assumptions` names; null without any.
        cost: in `currency`; null without a price.
        cost_parts: what of it is for "operations", "tokens", "gpu_time"; each only where it has a price.
        currency: the price file's.
        cycles: how many.
        save_every: cycles of a block, which ends in a `save_state`.
        once: what a run has beside its cycles, in words; null of a pipeline.
        per_cycle: the mean cycle, without what a run has once; null of a pipeline.
        models: what each model holds of the memory, by "provider/model".
        assumptions: what the numbers take for granted; of a pipeline what all its stages share.
        warnings: what speaks against beginning such a run.
        notes: how it is reckoned, and what it leaves out.
        samples: examples as the model meets them; only where they were asked for.
        gold: what the rewards make of the data's answers; as for `samples`.
        stages: of a pipeline, by name.
    """

    algorithm: str
    title: str
    operations: Spans
    tokens: Spans
    flops: Span | None
    memory: Memory | None
    seconds: Span | None
    cost: Span | None
    cost_parts: Spans
    currency: str | None
    cycles: int
    save_every: int = 1
    once: str | None = None
    per_cycle: Bill | None = None
    models: dict[str, Memory] = field(default_factory=dict)
    assumptions: Assumptions = field(default_factory=Assumptions)
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    gold: Gold | None = None
    stages: dict[str, Plan] = field(default_factory=dict)

    @property
    def bill(self) -> Bill:
        """What the whole of it comes to."""
        return Bill(self.operations, self.tokens, self.flops, self.seconds, self.cost, self.cost_parts)

    def as_json(self) -> dict[str, Any]:
        """Plain data, as `docs/plan.schema.json` describes it."""
        plain: dict[str, Any] = TypeAdapter(Plan).dump_python(self, mode="json")
        return plain


def in_all(stages: Mapping[str, Plan]) -> Plan:
    """A pipeline, stage after stage: everything is added, but memory is that of the largest."""
    plans = list(stages.values())
    memories = [plan.memory for plan in plans]
    known = [one for one in memories if one is not None]
    return Plan(
        algorithm="pipeline",
        title=f"a pipeline of {len(plans)} stages: {', '.join(stages)}",
        operations=summed(plan.operations for plan in plans),
        tokens=summed(plan.tokens for plan in plans),
        flops=added(plan.flops for plan in plans),
        memory=max(known, key=lambda one: one.total) if len(known) == len(plans) else None,
        seconds=added(plan.seconds for plan in plans),
        cost=added(plan.cost for plan in plans),
        cost_parts=summed(plan.cost_parts for plan in plans),
        currency=plans[0].currency,
        cycles=sum(plan.cycles for plan in plans),
        assumptions=replace(plans[0].assumptions, **dict.fromkeys(OF_A_STAGE)),
        stages=dict(stages),
    )
