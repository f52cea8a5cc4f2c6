"""What the rest of a run is likely to need: the limit that would bring one to its end that its budget has stopped."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, floor, log10
from typing import Any

from flows.config.budget import OF_THE_MONTH, OF_THE_RUN
from tasks.bill import billed

DIGITS = 3
"""Of money and minutes. Operations and tokens are whole."""

A_LITTLE = 0.1
"""Share of what is used, where nothing is known to be left: a limit on minutes that was met to the minute."""


def enough(path: str, summary: Mapping[str, Any], *, used: float, needed: float, done: float, of: float) -> float:
    """A limit that suffices, going by the parts that are done.

    Args:
        path: the limit, by its path in the configuration.
        summary: of the run or pipeline: what it has used itself.
        used: what is used of the limit; of a project's month by other runs, too.
        needed: what the part that was to come next needs, with the end of the run.
        done: parts that are trained and saved.
        of: of how many.
    """
    kind = (OF_THE_RUN | OF_THE_MONTH)[path.rpartition(".")[2]]
    own = used_itself(summary, kind)
    rest = own * (of - done) / done if done else own
    return _up(used + (max(rest, needed) or used * A_LITTLE), kind)


def used_itself(summary: Mapping[str, Any], kind: str) -> float:
    """What a run or pipeline has been billed, of "operations", "tokens", "cost" or "minutes"."""
    if kind == "minutes":
        return float(summary["seconds"]) / 60
    if kind == "cost":
        return float((summary.get("cost") or {}).get("billed", 0.0))
    return float(billed(summary, kind).total())


def _up(value: float, kind: str) -> float:
    """Never less than the value."""
    if kind in ("operations", "tokens") or value <= 0:
        return ceil(value)
    places = DIGITS - 1 - floor(log10(value))
    return round(ceil(value * 10**places) / 10**places, max(0, places))
