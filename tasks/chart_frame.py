"""What a chart stands in, as SVG: panel, grid, numbers, legend; and where a point lies in it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Self

WIDTH, HEIGHT = 640, 260
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 32, 56
INK, GRID, PANEL = "#374151", "#d1d5db", "#f9fafb"
"""An image does not know its page's theme, so it brings its own background: readable in the light and the dark one."""

LEGEND_WIDTH = 190
LARGEST = 1e300
"""A span that floats cannot divide, or overflow, would end a run for a picture's sake."""


@dataclass(frozen=True, slots=True)
class Frame:
    """The ranges of both axes.

    Args:
        x_low: at the left end.
        x_high: at the right end.
        y_ticks: round numbers from the lower end to the upper one.
    """

    x_low: float
    x_high: float
    y_ticks: Sequence[float]

    @classmethod
    def around(cls, x_low: float, x_high: float, values: Iterable[float]) -> Self:
        """One whose upright axis has room for the values, and for 0."""
        values = list(values)
        low, high = (max(-LARGEST, min(LARGEST, edge)) for edge in (min(0.0, *values), max(values)))
        return cls(x_low, x_high, nice_ticks(low, high if high - low > 1 / LARGEST else low + 1.0, 5))

    def at(self, x: float, y: float, aside: float = 0.0) -> tuple[str, str]:
        """Where a point is drawn, `aside` units to the right of its place."""
        low, high = self.y_ticks[0], self.y_ticks[-1]
        right = LEFT + (x - self.x_low) / (self.x_high - self.x_low) * (WIDTH - LEFT - RIGHT) + aside
        up = TOP + (high - y) / (high - low) * (HEIGHT - TOP - BOTTOM)
        return f"{right:.1f}", f"{up:.1f}"

    def chart(self, title: str, along: Sequence[tuple[float, str]], across: str, drawn: Iterable[str]) -> str:
        """The whole picture: what is `drawn` on the grid, `along` the lower axis names at their places."""
        panel = f'<rect width="{WIDTH}" height="{HEIGHT}" rx="6" fill="{PANEL}"/>'
        parts = [panel, text(LEFT, 20, title, weight="bold"), *self._axes(along, across), *drawn]
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
            f'height="{HEIGHT}" role="img" aria-label="{escape(title)}" font-family="sans-serif">{"".join(parts)}</svg>'
        )

    def _axes(self, along: Sequence[tuple[float, str]], across: str) -> list[str]:
        """Grid and numbers; what the lower axis counts."""
        parts = []
        for y in self.y_ticks:
            place = self.at(self.x_low, y)[1]
            parts.append(f'<path d="M{LEFT} {place}H{WIDTH - RIGHT}" stroke="{GRID}"/>')
            parts.append(text(LEFT - 8, float(place) + 4, f"{y:g}", anchor="end"))
        for x, name in along:
            anchor = "end" if x == self.x_high else "middle"  # half of it would be outside
            parts.append(text(self.at(x, self.y_ticks[0])[0], HEIGHT - BOTTOM + 18, name, anchor=anchor))
        parts.append(f'<path d="M{LEFT} {HEIGHT - BOTTOM}H{WIDTH - RIGHT}" stroke="{INK}"/>')
        parts.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - BOTTOM + 34, across, anchor="middle"))
        return parts


def nice_ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers, evenly spaced, from at or below `low` to at or above `high`: steps of 1, 2 or 5 times 10ⁿ."""
    span = (high - low) or abs(high) or 1.0
    magnitude = 10.0 ** math.floor(math.log10(span / most))
    step = next(factor * magnitude for factor in (1, 2, 5, 10) if span / (factor * magnitude) <= most)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 12) for i in range(first, max(last, first + 1) + 1)]


def legend(place: int, of: int, name: str, colour: str, *, dashed: bool = False) -> list[str]:
    """What a line is, at the bottom: the `place`th of so many."""
    left = LEFT + place * min(LEGEND_WIDTH, (WIDTH - LEFT) // of)
    dashes = ' stroke-dasharray="4 4"' if dashed else ""
    return [
        f'<path d="M{left} {HEIGHT - 11}h14" stroke="{colour}" stroke-width="4"{dashes}/>',
        text(left + 20, HEIGHT - 7, name),
    ]


def text(x: float | str, y: float, words: str, *, anchor: str = "start", weight: str = "normal") -> str:
    """Words at a place."""
    return (
        f'<text x="{x}" y="{y:g}" fill="{INK}" text-anchor="{anchor}" font-size="12" '
        f'font-weight="{weight}">{escape(words)}</text>'
    )
