"""A measured number beside what it is compared with and what it should be; and the table of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of a benchmark's table.

    Attributes:
        name: what was measured.
        ours: our figure, in `unit`.
        unit: s, MiB, tokens/s, …; "" for a share.
        peer: the peer's, or the baseline's, measured in the same run; None where there is none to compare with.
        at_least: the target: a lower bound of the ratio ours / peer, or of `ours` where there is no peer.
        at_most: the same, an upper bound. A figure without a bound is reported only.
    """

    name: str
    ours: float
    unit: str
    peer: float | None = None
    at_least: float | None = None
    at_most: float | None = None

    @property
    def ratio(self) -> float | None:
        """ours / peer."""
        return None if self.peer is None else self.ours / self.peer

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None without one."""
        if self.at_least is None and self.at_most is None:
            return None
        value = self.ours if self.ratio is None else self.ratio
        return (self.at_least is None or value >= self.at_least) and (self.at_most is None or value <= self.at_most)

    @property
    def target(self) -> str:
        """The bound and whether it is met, in a word."""
        if self.met is None:
            return ""
        bounds = [f"≥ {self.at_least:g}"] if self.at_least is not None else []
        bounds += [f"≤ {self.at_most:g}"] if self.at_most is not None else []
        return f"{' '.join(bounds)} {'met' if self.met else 'MISSED'}"

    def record(self) -> dict[str, Any]:
        """For results.json."""
        return {
            "ours": self.ours,
            "unit": self.unit,
            "peer": self.peer,
            "ratio": self.ratio,
            "target": self.target or None,
            "met": self.met,
        }


def table(figures: Sequence[Figure]) -> str:
    """One line a figure: ours, peer or baseline, ratio, target."""
    width = max(len(figure.name) for figure in figures)
    lines = [f"  {'':<{width}}  {'ours':>10}  {'peer':>10}  {'ratio':>7}  target"]
    for figure in figures:
        ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}"
        cells = f"{_number(figure.ours):>10}  {_number(figure.peer):>10}  {ratio:>7}  {figure.target:<15}"
        lines.append(f"  {figure.name:<{width}}  {cells} {figure.unit}".rstrip())
    return "\n".join(lines)


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
