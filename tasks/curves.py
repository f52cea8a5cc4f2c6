"""Smooth curves over a logarithmic axis, as SVG: the scaling of several algorithms beside one another."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from tasks.chart_frame import INK, Frame, legend, text
from tasks.curve import COLOURS

STEPS = 120


def log_chart_svg(
    curves: Mapping[str, Callable[[float], float]],
    *,
    low: float,
    high: float,
    title: str,
    across: str,
    marked: Mapping[str, float],
    level: tuple[float, str] | None = None,
) -> str:
    """A chart of functions by name, from `low` to `high`.

    Args:
        curves: what to draw.
        low: at the left end, above 0.
        high: at the right end, above `low`.
        title: stands above.
        across: what the lower axis counts.
        marked: where on a curve a dot stands.
        level: a height that is wanted, and what to call it: a dashed line.
    """
    grid = [low * (high / low) ** (step / STEPS) for step in range(STEPS + 1)]
    heights = [curve(x) for curve in curves.values() for x in grid] + ([level[0]] if level else [])
    frame = Frame.around(math.log10(low), math.log10(high), heights)
    drawn = _level(frame, *level) if level else []
    for place, (name, curve) in enumerate(curves.items()):
        colour = COLOURS[place % len(COLOURS)]
        path = "L".join(" ".join(frame.at(math.log10(x), curve(x))) for x in grid)
        drawn.append(f'<path class="curve" d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        if name in marked:
            right, up = frame.at(math.log10(marked[name]), curve(marked[name]))
            drawn.append(f'<circle cx="{right}" cy="{up}" r="4" fill="{colour}"/>')
        drawn += legend(place, len(curves), name, colour)
    along = [(math.log10(x), f"{x:,g}") for x in _ticks(low, high)]
    return frame.chart(title, along, across, drawn)


def _level(frame: Frame, height: float, name: str) -> list[str]:
    left, up = frame.at(frame.x_low, height)
    right = frame.at(frame.x_high, height)[0]
    line = f'<path class="level" d="M{left} {up}H{right}" stroke="{INK}" stroke-dasharray="4 4"/>'
    return [line, text(float(left) + 6, float(up) - 5, name)]


def _ticks(low: float, high: float) -> list[float]:
    """1 and 3 times the powers of ten; the powers alone where those would be too many to be told apart."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1, 3) if len(powers) <= 4 else (1,)
    ticks = [factor * 10.0**power for power in powers for factor in factors]
    return [x for x in ticks if low * 0.999 <= x <= high * 1.001]
