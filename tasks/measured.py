"""What was measured on held-out examples, as people read it: the same on every page, card and terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from algorithms.readings import NO_SHARES, Reading, reading

NAMES = {
    "accuracy": "accuracy, sampled",
    "greedy_accuracy": "accuracy, greedy",
    "finished_fraction": "replies that ended by themselves",
    "loss": "loss, nats per token",
    "margin": "margin of the pairs",
    "preference_accuracy": "pairs whose margin is positive",
}
"""The numbers that an evaluation may have, in the order in which they are shown; pass@K comes behind accuracy."""

HEADLINES = ("accuracy", "greedy_accuracy", "margin", "loss")
"""Where there is room for one number: the first of these that was measured."""

NOTHING = "–"

Evaluation = Mapping[str, Any] | None
"""An evaluation as a summary has it."""


def rows(before: Evaluation, after: Evaluation) -> Iterator[tuple[str, str, str]]:
    """Of each number that either of two evaluations has what it is called, and how both tell it."""
    tries = {name: f"{name}, sampled" for one in (before, after) for name in (one or {}).get("pass_at", {})}
    sampled, *others = NAMES.items()
    for name, label in (sampled, *tries.items(), *others):
        first, last = (told(name, reading(one, name)) for one in (before, after))
        if (first, last) != (NOTHING, NOTHING):
            yield label, first, last


def told(name: str, number: Reading | None) -> str:
    """A share in percent, with its interval where it has one: "54.2% [47, 61]"; another number as it is."""
    if number is None or not math.isfinite(number.value):
        return NOTHING
    if name in NO_SHARES:
        return str(number)
    low_high = "" if number.interval is None else " [{:.0f}, {:.0f}]".format(*(100 * end for end in number.interval))
    return f"{number.value:.1%}{low_high}"


def headline(before: Evaluation, after: Evaluation) -> tuple[str, str, str] | None:
    """The number that a line has room for: its name, and how two evaluations tell it; None where the later has none."""
    for name in HEADLINES:
        if (last := reading(after, name)) is not None:
            return name, told(name, reading(before, name)), told(name, last)
    return None


def gained(gain: Mapping[str, Any]) -> tuple[str, str]:
    """What accuracy has gained, compared prompt by prompt, and its interval: "+41.2 points", "[95%: 33, 48]"."""
    low, high = (100 * end for end in gain["interval"])
    return f"{100 * gain['gain']:+.1f} points", f"[95%: {low:.0f}, {high:.0f}]"
