"""Learning curves as SVG, and as the images of a markdown page.

Both of Prefect's UIs show an image whose address is a data URI. SVG written straight into the markdown is shown by the
first UI only: the second one's sanitizer removes it.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

Row = Mapping[str, Any]

WIDTH, HEIGHT = 640, 260
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 32, 56
ASIDE = 6
COLOURS = ("#3b82f6", "#f97316", "#10b981", "#a855f7", "#ef4444", "#64748b")
INK, GRID, PANEL = "#374151", "#d1d5db", "#f9fafb"
"""An image does not know its page's theme, so it brings its own background: readable in the light and the dark one."""


def line_chart_svg(
    rows: Sequence[Row],
    *,
    keys: Sequence[str],
    title: str,
    across: str = "cycle",
    joined: bool = False,
    names: Sequence[str] = (),
) -> str:
    """A self-contained SVG line chart of `keys` over cycles (counted from 1); "" when there is no point.

    A row may say how sure one can be of a number: `<key>_interval`, drawn as a whisker from its low to its high end.
    Numbers that are missing, None or not finite leave a gap in their line, as do missing cycles, unless `joined`.
    `across` says what the cycles' axis counts; with `names` it shows those, one for each row, in place of numbers.
    """
    series = {key: [(int(row["cycle"]) + 1, row[key]) for row in rows if finite(row.get(key))] for key in keys}
    series = {key: points for key, points in series.items() if points}
    if not series:
        return ""
    whiskers = {key: list(_whiskers(rows, key)) for key in series}
    cycles = [x for points in series.values() for x, _ in points]
    values = [y for points in series.values() for _, y in points]
    values += [y for ends in whiskers.values() for _, low, high in ends for y in (low, high)]
    # A span that floats cannot divide, or overflow, would end a run for a picture's sake.
    low, high = (max(-1e300, min(1e300, edge)) for edge in (min(0.0, *values), max(values)))
    y_ticks = nice_ticks(low, high if high - low > 1e-300 else low + 1.0, 5)
    x_low, x_high = min(cycles) - 0.5, max(cycles) + 0.5
    x_ticks = [x for x in nice_ticks(min(cycles), max(cycles), 8) if x == int(x) and x_low <= x <= x_high]
    y_low, y_high = y_ticks[0], y_ticks[-1]

    def at(x: float, y: float, aside: float = 0.0) -> tuple[str, str]:
        right = LEFT + (x - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT) + aside
        up = TOP + (y_high - y) / (y_high - y_low) * (HEIGHT - TOP - BOTTOM)
        return f"{right:.1f}", f"{up:.1f}"

    parts = [f'<rect width="{WIDTH}" height="{HEIGHT}" rx="6" fill="{PANEL}"/>', _text(LEFT, 20, title, weight="bold")]
    along: list[tuple[float, str]] = [*enumerate(names, 1)] or [(x, f"{x:g}") for x in x_ticks]
    parts += _axes([(y, at(x_low, y)[1]) for y in y_ticks], [(name, at(x, y_low)[0]) for x, name in along], across)
    for place, (key, points) in enumerate(series.items()):
        colour = COLOURS[place % len(COLOURS)]
        # Whiskers of one cycle would hide one another.
        aside = ASIDE * (place - (len(series) - 1) / 2) if any(whiskers.values()) else 0.0
        parts += [_whisker(*at(x, bottom, aside), at(x, top)[1], colour) for x, bottom, top in whiskers[key]]
        parts += _line([(x, at(x, y, aside)) for x, y in points], colour, joined=joined)
        parts += _legend(place, len(series), key, colour)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'role="img" aria-label="{escape(title)}" font-family="sans-serif">{"".join(parts)}</svg>'
    )


def image(svg: str, alternative: str) -> str:
    """A picture in a markdown page."""
    return f"![{alternative}](data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()})"


def finite(value: object) -> bool:
    """Whether it is a number that can be drawn."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def nice_ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers, evenly spaced, from at or below `low` to at or above `high`: steps of 1, 2 or 5 times 10ⁿ."""
    span = (high - low) or abs(high) or 1.0
    magnitude = 10.0 ** math.floor(math.log10(span / most))
    step = next(factor * magnitude for factor in (1, 2, 5, 10) if span / (factor * magnitude) <= most)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 12) for i in range(first, max(last, first + 1) + 1)]


def _axes(up: Sequence[tuple[float, str]], along: Sequence[tuple[str, str]], across: str) -> list[str]:
    """Grid and numbers, from (tick, where it stands); what the lower axis counts."""
    parts = []
    for y, place in up:
        parts.append(f'<path d="M{LEFT} {place}H{WIDTH - RIGHT}" stroke="{GRID}"/>')
        parts.append(_text(LEFT - 8, float(place) + 4, f"{y:g}", anchor="end"))
    parts += [_text(place, HEIGHT - BOTTOM + 18, name, anchor="middle") for name, place in along]
    parts.append(f'<path d="M{LEFT} {HEIGHT - BOTTOM}H{WIDTH - RIGHT}" stroke="{INK}"/>')
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - BOTTOM + 34, across, anchor="middle"))
    return parts


def _line(points: Sequence[tuple[int, tuple[str, str]]], colour: str, *, joined: bool) -> list[str]:
    """Neighbouring cycles joined, and a dot on each: a single cycle shows too, and a gap stays a gap."""
    path, former = "", None
    for x, (across, up) in points:
        path += f"{'L' if former is not None and (joined or x == former + 1) else 'M'}{across} {up}"
        former = x
    dots = [f'<circle cx="{across}" cy="{up}" r="2.5" fill="{colour}"/>' for _, (across, up) in points]
    return [f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"/>', *dots]


def _whiskers(rows: Sequence[Row], key: str) -> Iterator[tuple[int, float, float]]:
    """(cycle, low, high) of every number that is drawn and has an interval."""
    for row in rows:
        ends = row.get(f"{key}_interval")
        if ends is not None and finite(row.get(key)) and all(map(finite, ends)):
            yield int(row["cycle"]) + 1, ends[0], ends[1]


def _whisker(across: str, bottom: str, top: str, colour: str) -> str:
    left = float(across) - 4
    path = f"M{across} {bottom}V{top}M{left:.1f} {bottom}h8M{left:.1f} {top}h8"
    return f'<path class="whisker" d="{path}" stroke="{colour}" stroke-opacity="0.6"/>'


def _legend(place: int, of: int, key: str, colour: str) -> list[str]:
    left = LEFT + place * min(190, (WIDTH - LEFT) // of)
    return [
        f'<rect x="{left}" y="{HEIGHT - 13}" width="14" height="4" fill="{colour}"/>',
        _text(left + 20, HEIGHT - 7, key),
    ]


def _text(x: float | str, y: float, text: str, *, anchor: str = "start", weight: str = "normal") -> str:
    return (
        f'<text x="{x}" y="{y:g}" fill="{INK}" text-anchor="{anchor}" font-size="12" '
        f'font-weight="{weight}">{escape(text)}</text>'
    )
