"""A run on one page of markdown, as the Prefect UI shows it: before and after, the curves, the last cycle explained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tasks.bill import bill_markdown, longer_told
from tasks.curve import Row, finite, image, line_chart_svg
from tasks.glossary import explain
from tasks.measured import gained, rows
from tasks.planned import planned_markdown
from tasks.run_forecast import RunForecast, forecast_told
from tasks.stopped import stopped_markdown

CHARTS = (
    ("Reward by cycle", ("reward_mean", "reward_max", "best_reward")),
    ("Reverse KL to the teacher, nats per token", ("teacher_kl",)),
    ("Margin of the pairs", ("margin",)),
    ("Share of pairs whose margin is positive", ("accuracy",)),
    ("Loss by cycle, nats per token", ("loss_per_token",)),
    ("KL from the initial weights, nats per token", ("kl_reference", "kl_reference_k3")),
    ("Variance of returns that the critic explains", ("critic_explained_variance",)),
    ("Shares of completions and groups", ("stop_fraction", "length_fraction", "zero_signal_fraction")),
)
"""Titles and keys, the curve that an algorithm is about before the ones that explain it; those without a point are left
out, so that each algorithm shows its own."""
HELDOUT_CHARTS = (
    ("Held-out accuracy, with 95% intervals", ("accuracy", "greedy_accuracy")),
    ("Held-out loss, nats per token", ("loss",)),
    ("Held-out margin of the pairs", ("margin",)),
    ("Share of held-out pairs whose margin is positive", ("preference_accuracy",)),
)
SHOWN = (
    "reward_mean",
    "best_reward",
    "teacher_kl",
    "margin",
    "accuracy",
    "loss_per_token",
    "kl_reference",
    "critic_explained_variance",
    "zero_signal_fraction",
    "length_fraction",
    "completion_tokens_mean",
    "kl_sampler_trainer",
    "grad_norm",
    "learning_rate",
    "seconds/cycle",
)


def run_report_markdown(
    summary: Row | None,
    rows: Sequence[Row],
    evaluations: Sequence[Row] = (),
    *,
    name: str,
    algorithm: str,
    forecast: RunForecast | None = None,
) -> str:
    """The page of a run: how it ended (once it has), the curves, the last cycle with each number explained.

    `rows` are those of metrics.jsonl, `evaluations` those of evaluations.jsonl, so far; the `forecast` is theirs.
    """
    parts = [f"# {algorithm} · {name}"]
    if summary is not None:
        parts += [stopped_markdown(summary), _before_after(summary), _ending(summary), bill_markdown(summary)]
        parts += [planned_markdown(summary), longer_told(summary) or ""]
    parts += _heldout_charts(evaluations)
    onward = None if forecast is None else forecast.onward()
    charts = {title: line_chart_svg(rows, keys=keys, title=title, onward=onward) for title, keys in CHARTS}
    parts += [image(svg, title) for title, svg in charts.items() if svg]
    parts += [f"Forecast: {forecast_told(forecast.as_json())}."] if forecast else []
    if rows:
        parts.append(_last_cycle(rows[-1]))
    parts.append(
        "Every key of `metrics.jsonl` and `evaluations.jsonl` is explained in `docs/metrics.md` of the project."
    )
    return "\n\n".join(part for part in parts if part) + "\n"


def _heldout_charts(evaluations: Sequence[Row]) -> list[str]:
    """What was measured on held-out examples, over the cycles trained by then; a single measurement is no curve."""
    if len(evaluations) < 2:
        return []
    rows = [_flat(one) for one in evaluations if one.get("cycle") is not None]
    tries = dict.fromkeys(name for one in evaluations for name in one.get("pass_at", {}))
    found = []
    for title, keys in HELDOUT_CHARTS:
        wanted = (*keys, *tries) if "accuracy" in keys else keys
        if svg := line_chart_svg(rows, keys=wanted, title=title, across="cycles trained", joined=True):
            found.append(image(svg, title))
    return found


def _flat(evaluation: Row) -> dict[str, Any]:
    """A measurement as a row of numbers and their intervals; a chart counts from 1, so "before" comes to stand at 0."""
    intervals = {f"{key}_interval": ends for key, ends in evaluation.get("intervals", {}).items()}
    return {**evaluation, **evaluation.get("pass_at", {}), **intervals, "cycle": evaluation["cycle"] - 1}


def _before_after(summary: Row) -> str:
    """A row for each number of the held-out evaluations; nothing when there was none."""
    measured = rows(summary.get("evaluation_before"), summary.get("evaluation_after"))
    lines = [f"| {' | '.join(row)} |" for row in measured]
    if not lines:
        return ""
    return "\n".join(["| held out, 95% interval | before | after |", "|---|---|---|", *lines]) + _gain(summary)


def _gain(summary: Row) -> str:
    if not (gain := summary.get("accuracy_gain")):
        return ""
    points, interval = gained(gain)
    return f"\n\nAccuracy, compared prompt by prompt: **{points}** {interval}"


def _ending(summary: Row) -> str:
    facts = {
        "cycles": summary.get("cycles"),
        "seconds": summary.get("seconds"),
        "run folder": summary.get("run_folder"),
        "adapter": summary.get("adapter"),
        "adapter SHA-256": summary.get("adapter_sha256"),
        "open sessions": summary.get("open_sessions"),
    }
    return "\n".join(f"- {label}: `{value}`" for label, value in facts.items() if value is not None)


def _last_cycle(row: Row) -> str:
    lines = [f"| `{key}` | {_number(row[key])} | {explain(key)} |" for key in SHOWN if finite(row.get(key))]
    return "\n".join([f"| cycle {int(row['cycle']) + 1} | | |", "|---|---|---|", *lines]) if lines else ""


def _number(value: Any) -> str:
    return f"{value:.4g}" if finite(value) else "–"
