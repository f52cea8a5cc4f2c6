"""Planned and billed, kind by kind: what a run was to cost, beside what it has cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tasks.bill import billed, counted
from tasks.stopped import planned_of

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
        billed: what it came to, over all attempts.
    """

    kind: str
    typical: float
    most: float
    billed: int


def planned_beside_billed(summary: Mapping[str, Any], part: str) -> list[Line]:
    """A line for each kind of "operations" or "tokens"; none where no plan is on record."""
    planned: Mapping[str, Mapping[str, float]] = (summary.get("planned") or {}).get(part, {})
    if not planned:
        return []
    cost = billed(summary, part)
    return [
        Line(kind, planned.get(kind, {}).get("typical", 0), planned.get(kind, {}).get("most", 0), cost[kind])
        for kind in sorted({*planned, *cost})
    ]


def planned_told(summary: Mapping[str, Any]) -> str | None:
    """In a line: what was planned, and where that is not what was billed; None where no plan is on record."""
    operations, tokens = (planned_beside_billed(summary, part) for part in PARTS)
    if not operations:
        return None
    others = [
        f"{line.kind} {line.typical:,.0f} planned, {line.billed:,} billed" for line in operations if _differs(line)
    ]
    total = counted(round(sum(line.typical for line in operations)), "operation")
    how = f" ({'; '.join(others)})" if others else ", kind by kind as billed"
    tokens_told = ", ".join(f"{line.typical:,.0f} {line.kind}" for line in tokens)
    return f"{_whole(summary)}typically {total}{how}; tokens: {tokens_told}"


def planned_markdown(summary: Mapping[str, Any]) -> str:
    """The same as a table; "" where no plan is on record."""
    lines = [line for part in PARTS for line in planned_beside_billed(summary, part)]
    rows = [f"| {line.kind} | {line.typical:,.0f} | {line.most:,.0f} | {line.billed:,} |" for line in lines]
    head = f"| | planned, {_whole(summary)}typically | at most | billed |"
    return "\n".join([head, "|---|---|---|---|", *rows]) if rows else ""


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


def _whole(summary: Mapping[str, Any]) -> str:
    whole = planned_of(summary)
    return f"for {whole}, " if whole else ""
