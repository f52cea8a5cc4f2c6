"""A plan as a record: what `whitney plan` shows and prints as JSON, and a run keeps as plan.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter

from algorithms.memory import Memory
from algorithms.spans import Span, Spans, added, summed
from flows.checks.plan_gold import Gold
from flows.checks.plan_rates import Bill
from flows.checks.plan_samples import Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A run as it is planned, measurements and export included.

    Args:
        algorithm: its name; of a pipeline "pipeline".
        title: what is trained, in a line.
        operations: by the wire's names.
        tokens: "prefill", "sampled", "trained", as the ledger counts them.
        flops: floating point operations; None where a model's sizes are not known.
        memory: bytes of all models at once, None as for `flops`; of a pipeline, of its largest stage.
        seconds: on the price file's GPUs, or the one that is named; None without either.
        cost: in `currency`; None without a price file.
        currency: the price file's.
        cycles: how many.
        per_cycle: the mean cycle, without what a run has once; None of a pipeline.
        models: what each model holds of the memory, by "provider/model".
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
    currency: str | None
    cycles: int
    per_cycle: Bill | None = None
    models: dict[str, Memory] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    gold: Gold | None = None
    stages: dict[str, Plan] = field(default_factory=dict)

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
        currency=plans[0].currency,
        cycles=sum(plan.cycles for plan in plans),
        stages=dict(stages),
    )
