"""What a pipeline amounts to: summary.json, and what the flow returns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from flows.config import BudgetConfig
from flows.config.pipeline import PIPELINE
from flows.durable.budget.paid import cost_beside_plan, prices_of
from flows.stages.outcome import StageOutcome
from tasks.bill import AGAIN, billed
from tasks.planned import PARTS, planned_together

SPAN = ("least", "typical", "most")


def own_bill(outcomes: Sequence[StageOutcome], flow_run_id: str) -> dict[str, Any]:
    """Operations and tokens of the stages that this pipeline has trained, and what was planned of them.

    Stages that another run has trained, and this one has started after, are on that run's bill.
    """
    own = [outcome for outcome in outcomes if outcome.pipeline_flow_run_id == flow_run_id]
    operations, tokens = Counter[str](), Counter[str]()
    for outcome in own:
        operations.update(outcome.operations)
        tokens.update(outcome.tokens)
    return {
        "operations": dict(sorted(operations.items())),
        "tokens": dict(sorted(tokens.items())),
        "planned": planned_together([outcome.planned for outcome in own]),
        "redone": _redone(own),
    }


def cost_of(budget: BudgetConfig, bill: Mapping[str, Any], seconds: float) -> dict[str, Any] | None:
    """The money of `own_bill`, by the pipeline's own price file; None without one.

    What is paid by the hour is not planned: stages reckon their time by prices of their own.
    """
    prices = prices_of(budget)
    billed_for = None if bill["redone"] is None else {part: billed(bill, part) for part in PARTS}
    planned = None
    if prices is not None and prices.gpu is None and bill["planned"]:
        operations, tokens = (bill["planned"][part] for part in PARTS)
        planned = {name: prices.cost(_at(operations, name), _at(tokens, name)) for name in SPAN}
    return cost_beside_plan(prices, billed_for, seconds, planned)


def _at(spans: Mapping[str, Mapping[str, float]], name: str) -> dict[str, float]:
    return {kind: span[name] for kind, span in spans.items()}


def summarize(outcomes: Sequence[StageOutcome], flow_run_id: str) -> dict[str, Any]:
    """Every stage, the last one's adapter, and what all of them have cost.

    `flow_run_id` is the pipeline's own: stages that another run has trained are in `stages` and not in the sums.
    """
    last, rows = outcomes[-1], [outcome.model_dump(mode="json") for outcome in outcomes]
    return {
        "algorithm": PIPELINE,
        "stages": rows,
        "evaluation_before": rows[0]["evaluation_before"],
        "evaluation_after": rows[-1]["evaluation_after"],
        **own_bill(outcomes, flow_run_id),
        "gates": {outcome.stage: outcome.gate.model_dump() for outcome in outcomes if outcome.gate},
        "model": last.model,
        "provider": last.provider,
        "adapter": last.adapter,
        "adapter_sha256": last.adapter_sha256,
        "artifact_id": last.artifact_id,
        "state_id": last.state_id,
    }


def _redone(outcomes: Sequence[StageOutcome]) -> dict[str, Any] | None:
    """What was billed beyond that, of all stages; None where one of them could not be asked about."""
    parts = [outcome.redone for outcome in outcomes]
    if any(part is None for part in parts):
        return None
    kinds = {name: Counter[str]() for name in AGAIN.values()}
    for part in parts:
        for name, sums in kinds.items():
            sums.update((part or {}).get(name, {}))
    total = {name: sum((part or {}).get(name, 0) for part in parts) for name in AGAIN}
    return {**total, **{name: dict(sorted(sums.items())) for name, sums in kinds.items()}}
