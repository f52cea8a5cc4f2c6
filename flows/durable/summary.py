"""What a run amounts to: summary.json, and what the flow returns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from algorithms import difference_interval
from flows.config import FlowConfig
from flows.durable.outcome import EvaluationOutcome, ExportOutcome, Row
from tasks.reward_range import reward_range
from tasks.run_forecast import run_forecast


def summarize(
    algorithm: str,
    config: FlowConfig,
    rows: Sequence[Row],
    evaluations: Sequence[EvaluationOutcome],
    adapter: ExportOutcome,
) -> dict[str, Any]:
    """Before and after, and what it cost: the operations and tokens of every adopted block, evaluation and export.

    `beside_blocks` is what the evaluations and the export cost, each: what metrics.jsonl does not hold.
    """
    before = next((one for one in evaluations[:1] if one.when == "before"), None)
    after = next((one for one in evaluations[-1:] if one.when != "before"), None)
    others: list[EvaluationOutcome | ExportOutcome] = [*evaluations, adapter]
    forecast = run_forecast(rows, reward_range(config.reward_terms()))
    usage = Counter[str]()
    for part in (*rows, *(other.usage for other in others)):
        usage.update({key: value for key, value in part.items() if key.startswith(("operations/", "tokens/"))})
    return {
        "algorithm": algorithm,
        "model": config.model.name,
        "provider": config.model.provider,
        "options": options(config),
        "cycles": len(rows),
        "accuracy_before": before.accuracy if before else None,
        "accuracy_after": after.accuracy if after else None,
        "evaluation_before": before.told if before else None,
        "evaluation_after": after.told if after else None,
        "evaluations": [one.told for one in evaluations],
        "accuracy_gain": accuracy_gain(before, after) if before and after else None,
        "forecast": forecast.as_json() if forecast else None,
        "operations": _section(usage, "operations/"),
        "tokens": _section(usage, "tokens/"),
        "beside_blocks": [{"attempt": other.attempt, **other.usage} for other in others],
        "adapter": adapter.path,
        "adapter_sha256": adapter.sha256,
        "artifact_id": adapter.artifact_id,
    }


def accuracy_gain(before: EvaluationOutcome, after: EvaluationOutcome) -> dict[str, Any] | None:
    """`gain`, after less before, and `interval`, 95% of it, prompt by prompt; None where they cannot be compared.

    Those of a run that was made to measure other prompts in its middle, or other samples of them, cannot.
    """
    if not before.correct or (len(before.correct), before.samples) != (len(after.correct), after.samples):
        return None
    early, late = ([count / one.samples for count in one.correct] for one in (before, after))
    return {"gain": fmean(late) - fmean(early), "interval": difference_interval(early, late, after.samples)}


def _section(usage: Counter[str], prefix: str) -> dict[str, int]:
    return {key.removeprefix(prefix): int(value) for key, value in sorted(usage.items()) if key.startswith(prefix)}


def options(config: FlowConfig) -> dict[str, Any]:
    """The algorithm's own settings, so that no variant goes unnamed: which estimator, which bounds, which KL term."""
    shared = FlowConfig.model_fields.keys() | {"groups_per_cycle", "group_size", "rewards", "batch_size"}
    return config.model_dump(mode="json", exclude=set(shared) - {"steps_per_batch"})
