"""Learning curves as SVG, and as the images of a markdown page.

Both of Prefect's UIs show an image whose address is a data URI. SVG written straight into the markdown is shown by the
first UI only: the second one's sanitizer removes it.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tasks.chart_frame import Frame, legend, nice_ticks

Row = Mapping[str, Any]

ASIDE = 6
COLOURS = ("#3b82f6", "#f97316", "#10b981", "#a855f7", "#ef4444", "#64748b")


@dataclass(frozen=True, slots=True)
class Onward:
    """How a line may go on beyond its last point.

    Args:
        key: the line's.
        name: for the legend.
        points: cycle (counted from 1), value, low and high end of its interval.
    """

    key: str
    name: str
    points: Sequence[tuple[float, float, float, float]]


def line_chart_svg(
    rows: Sequence[Row],
    *,
    keys: Sequence[str],
    title: str,
    across: str = "cycle",
    joined: bool = False,
    names: Sequence[str] = (),
    onward: Onward | None = None,
) -> str:
    """A self-contained SVG line chart of `keys` over cycles (counted from 1); "" when there is no point.

    A row may say how sure one can be of a number: `<key>_interval`, drawn as a whisker from its low to its high end.
    Numbers that are missing, None or not finite leave a gap in their line, as do missing cycles, unless `joined`.
    `across` says what the cycles' axis counts; with `names` it shows those, one for each row, in place of numbers.
    `onward` is drawn dotted, in its line's colour and on a band from low to high; not where that line has no point.
    """
    series = {key: [(int(row["cycle"]) + 1, row[key]) for row in rows if finite(row.get(key))] for key in keys}
    series = {key: points for key, points in series.items() if points}
    if not series:
        return ""
    if onward is not None and onward.key not in series:
        onward = None
    whiskers = {key: list(_whiskers(rows, key)) for key in series}
    ahead = onward.points if onward else ()
    cycles = [x for points in series.values() for x, _ in points]
    values = [y for points in series.values() for _, y in points] + [y for _, *ends in ahead for y in ends]
    values += [y for ends in whiskers.values() for _, low, high in ends for y in (low, high)]
    first, last = min(cycles), max([*cycles, *(x for x, *_ in ahead)])
    frame = Frame.around(first - 0.5, last + 0.5, values)
    ticks = [x for x in nice_ticks(first, last, 8) if x == int(x) and frame.x_low <= x <= frame.x_high]
    drawn: list[str] = []
    entries = len(series) + (onward is not None)
    for place, (key, points) in enumerate(series.items()):
        colour = COLOURS[place % len(COLOURS)]
        # Whiskers of one cycle would hide one another.
        aside = ASIDE * (place - (len(series) - 1) / 2) if any(whiskers.values()) else 0.0
        drawn += [
            _whisker(*frame.at(x, bottom, aside), frame.at(x, top)[1], colour) for x, bottom, top in whiskers[key]
        ]
        drawn += _line([(x, frame.at(x, y, aside)) for x, y in points], colour, joined=joined)
        drawn += legend(place, entries, key, colour)
        if onward and onward.key == key:
            drawn += [*_onward(onward, frame, colour), *legend(len(series), entries, onward.name, colour, dashed=True)]
    return frame.chart(title, [*enumerate(names, 1)] or [(x, f"{x:g}") for x in ticks], across, drawn)


def image(svg: str, alternative: str) -> str:
    """A picture in a markdown page."""
    return f"![{alternative}](data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()})"


def finite(value: object) -> bool:
    """Whether it is a number that can be drawn."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _line(points: Sequence[tuple[int, tuple[str, str]]], colour: str, *, joined: bool) -> list[str]:
    """Neighbouring cycles joined, and a dot on each: a single cycle shows too, and a gap stays a gap."""
    path, former = "", None
    for x, (across, up) in points:
        path += f"{'L' if former is not None and (joined or x == former + 1) else 'M'}{across} {up}"
        former = x
    dots = [f'<circle cx="{across}" cy="{up}" r="2.5" fill="{colour}"/>' for _, (across, up) in points]
    return [f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"/>', *dots]


def _onward(onward: Onward, frame: Frame, colour: str) -> Iterator[str]:
    """The band of the interval, and the dotted line on it."""
    edge = [frame.at(x, high) for x, _, _, high in onward.points]
    edge += [frame.at(x, low) for x, _, low, _ in reversed(onward.points)]
    line = [frame.at(x, value) for x, value, _, _ in onward.points]
    yield f'<path class="band" d="{_through(edge)}Z" fill="{colour}" fill-opacity="0.15"/>'
    yield (
        f'<path class="onward" d="{_through(line)}" fill="none" stroke="{colour}" stroke-width="2" '
        'stroke-dasharray="2 4"/>'
    )


def _through(places: Sequence[tuple[str, str]]) -> str:
    return "M" + "L".join(f"{across} {up}" for across, up in places)


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
