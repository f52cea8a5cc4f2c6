"""Planned and billed, kind by kind: what a run was to cost, beside what it has cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

PARTS = ("operations", "tokens")

Planned = Mapping[str, Mapping[str, Mapping[str, float]]]
"""A summary's `planned`: "operations" and "tokens", by kind, each as `{"least", "typical", "most"}`."""


@dataclass(frozen=True, slots=True)
class Line:
    """One kind of operation or of token.

    Args:
        kind: by the wire's name.
        typical: what was planned.
        most: at most.
        billed: what it came to.
    """

    kind: str
    typical: float
    most: float
    billed: int


def planned_beside_billed(summary: Mapping[str, Any], part: str) -> list[Line]:
    """A line for each kind of "operations" or "tokens"; none where no plan is on record."""
    planned: Mapping[str, Mapping[str, float]] = (summary.get("planned") or {}).get(part, {})
    billed: Mapping[str, int] = summary.get(part, {})
    if not planned:
        return []
    return [
        Line(kind, planned.get(kind, {}).get("typical", 0), planned.get(kind, {}).get("most", 0), billed.get(kind, 0))
        for kind in sorted({*planned, *billed})
    ]


def planned_told(summary: Mapping[str, Any]) -> str | None:
    """In a line: what was planned, and where that is not what was billed; None where no plan is on record."""
    operations, tokens = (planned_beside_billed(summary, part) for part in PARTS)
    if not operations:
        return None
    others = [f"{line.kind} {line.typical:,.0f}, not {line.billed:,}" for line in operations if _differs(line)]
    total = sum(line.typical for line in operations)
    how = f" ({'; '.join(others)})" if others else ", kind by kind as billed"
    counted = ", ".join(f"{line.typical:,.0f} {line.kind}" for line in tokens)
    return f"typically {total:,.0f} operations{how}; tokens: {counted}"


def planned_markdown(summary: Mapping[str, Any]) -> str:
    """The same as a table; "" where no plan is on record."""
    lines = [line for part in PARTS for line in planned_beside_billed(summary, part)]
    rows = [f"| {line.kind} | {line.typical:,.0f} | {line.most:,.0f} | {line.billed:,} |" for line in lines]
    return "\n".join(["| | planned, typically | at most | billed |", "|---|---|---|---|", *rows]) if rows else ""


def planned_together(plans: Sequence[Planned | None]) -> dict[str, dict[str, dict[str, float]]] | None:
    """The stages of a pipeline; None where one has no plan on record."""
    known = [plan for plan in plans if plan]
    if not plans or len(known) < len(plans):
        return None
    return {part: _added(plan[part] for plan in known) for part in PARTS}


def _added(parts: Iterable[Mapping[str, Mapping[str, float]]]) -> dict[str, dict[str, float]]:
    total: dict[str, dict[str, float]] = {}
    for part in parts:
        for kind, span in part.items():
            before = total.get(kind, {})
            total[kind] = {name: before.get(name, 0) + value for name, value in span.items()}
    return total


def _differs(line: Line) -> bool:
    return round(line.typical) != line.billed
