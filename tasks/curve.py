"""A run on one page: learning curves as SVG, and the markdown that the Prefect UI shows.

Both of Prefect's UIs show an image whose address is a data URI. SVG written straight into the markdown is shown by the
first UI only: the second one's sanitizer removes it.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from tasks.glossary import explain

Row = Mapping[str, Any]

WIDTH, HEIGHT = 640, 260
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 32, 56
COLOURS = ("#3b82f6", "#f97316", "#10b981", "#a855f7", "#ef4444", "#64748b")
INK, GRID, PANEL = "#374151", "#d1d5db", "#f9fafb"
"""An image does not know its page's theme, so it brings its own background: readable in the light and the dark one."""

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


def line_chart_svg(rows: Sequence[Row], *, keys: Sequence[str], title: str) -> str:
    """A self-contained SVG line chart of `keys` over cycles (counted from 1); "" when there is no point.

    Numbers that are missing, None or not finite leave a gap in their line.
    """
    series = {key: [(int(row["cycle"]) + 1, row[key]) for row in rows if _finite(row.get(key))] for key in keys}
    series = {key: points for key, points in series.items() if points}
    if not series:
        return ""
    cycles = [x for points in series.values() for x, _ in points]
    values = [y for points in series.values() for _, y in points]
    # A span that floats cannot divide, or overflow, would end a run for a picture's sake.
    low, high = (max(-1e300, min(1e300, edge)) for edge in (min(0.0, *values), max(values)))
    y_ticks = nice_ticks(low, high if high - low > 1e-300 else low + 1.0, 5)
    x_low, x_high = min(cycles) - 0.5, max(cycles) + 0.5
    x_ticks = [x for x in nice_ticks(min(cycles), max(cycles), 8) if x == int(x) and x_low <= x <= x_high]
    y_low, y_high = y_ticks[0], y_ticks[-1]

    def at(x: float, y: float) -> tuple[str, str]:
        across = LEFT + (x - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT)
        up = TOP + (y_high - y) / (y_high - y_low) * (HEIGHT - TOP - BOTTOM)
        return f"{across:.1f}", f"{up:.1f}"

    parts = [f'<rect width="{WIDTH}" height="{HEIGHT}" rx="6" fill="{PANEL}"/>', _text(LEFT, 20, title, weight="bold")]
    for y in y_ticks:
        _, up = at(x_low, y)
        parts.append(f'<path d="M{LEFT} {up}H{WIDTH - RIGHT}" stroke="{GRID}"/>')
        parts.append(_text(LEFT - 8, float(up) + 4, f"{y:g}", anchor="end"))
    for x in x_ticks:
        across, _ = at(x, y_low)
        parts.append(_text(across, HEIGHT - BOTTOM + 18, f"{x:g}", anchor="middle"))
    parts.append(f'<path d="M{LEFT} {HEIGHT - BOTTOM}H{WIDTH - RIGHT}" stroke="{INK}"/>')
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - BOTTOM + 34, "cycle", anchor="middle"))
    for place, (key, points) in enumerate(series.items()):
        colour = COLOURS[place % len(COLOURS)]
        parts += [*_line([(x, at(x, y)) for x, y in points], colour), *_legend(place, key, colour)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'role="img" aria-label="{escape(title)}" font-family="sans-serif">{"".join(parts)}</svg>'
    )


def nice_ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers, evenly spaced, from at or below `low` to at or above `high`: steps of 1, 2 or 5 times 10ⁿ."""
    span = (high - low) or abs(high) or 1.0
    magnitude = 10.0 ** math.floor(math.log10(span / most))
    step = next(factor * magnitude for factor in (1, 2, 5, 10) if span / (factor * magnitude) <= most)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 12) for i in range(first, max(last, first + 1) + 1)]


def _line(points: Sequence[tuple[int, tuple[str, str]]], colour: str) -> list[str]:
    """Neighbouring cycles joined, and a dot on each: a single cycle shows too, and a gap stays a gap."""
    path, former = "", None
    for x, (across, up) in points:
        path += f"{'L' if former is not None and x == former + 1 else 'M'}{across} {up}"
        former = x
    dots = [f'<circle cx="{across}" cy="{up}" r="2.5" fill="{colour}"/>' for _, (across, up) in points]
    return [f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"/>', *dots]


def _legend(place: int, key: str, colour: str) -> list[str]:
    left = LEFT + place * 190
    return [
        f'<rect x="{left}" y="{HEIGHT - 13}" width="14" height="4" fill="{colour}"/>',
        _text(left + 20, HEIGHT - 7, key),
    ]


def _text(x: float | str, y: float, text: str, *, anchor: str = "start", weight: str = "normal") -> str:
    return (
        f'<text x="{x}" y="{y:g}" fill="{INK}" text-anchor="{anchor}" font-size="12" '
        f'font-weight="{weight}">{escape(text)}</text>'
    )


def _finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def run_report_markdown(summary: Row | None, rows: Sequence[Row], *, name: str, algorithm: str) -> str:
    """The page of a run: how it ended (once it has), the curves, the last cycle with each number explained."""
    parts = [f"# {algorithm} · {name}"]
    if summary is not None:
        parts += [_before_after(summary), _ending(summary)]
    charts = {title: line_chart_svg(rows, keys=keys, title=title) for title, keys in CHARTS}
    parts += [_image(svg, title) for title, svg in charts.items() if svg]
    if rows:
        parts.append(_last_cycle(rows[-1]))
    parts.append("Every key of `metrics.jsonl` is explained in `docs/metrics.md` of the project.")
    return "\n\n".join(part for part in parts if part) + "\n"


def _image(svg: str, alternative: str) -> str:
    return f"![{alternative}](data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()})"


def _before_after(summary: Row) -> str:
    """A row for each number of the held-out evaluations; nothing when there was none."""
    before, after = summary.get("evaluation_before") or {}, summary.get("evaluation_after") or {}
    names = {
        "accuracy": "accuracy, sampled",
        "greedy_accuracy": "accuracy, greedy",
        "finished_fraction": "replies that ended by themselves",
        "loss": "loss, nats per token",
        "margin": "margin of the pairs",
        "preference_accuracy": "pairs whose margin is positive",
    }
    lines = [
        f"| {label} | {_number(before.get(key))} | {_number(after.get(key))} |"
        for key, label in names.items()
        if _finite(before.get(key)) or _finite(after.get(key))
    ]
    return "\n".join(["| held out | before | after |", "|---|---|---|", *lines]) if lines else ""


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
    lines = [f"| `{key}` | {_number(row[key])} | {explain(key)} |" for key in SHOWN if _finite(row.get(key))]
    return "\n".join([f"| cycle {int(row['cycle']) + 1} | | |", "|---|---|---|", *lines]) if lines else ""


def _number(value: Any) -> str:
    return f"{value:.4g}" if _finite(value) else "–"
