"""Numbers of an evaluation's record, each with its interval: what gates read, and what people are shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MEASURED = (
    "accuracy",
    "greedy_accuracy",
    "finished_fraction",
    "loss",
    "margin",
    "preference_accuracy",
)
"""What an evaluation has as a number, beside pass@K."""

NO_SHARES = ("loss", "margin")
"""Those that are no shares of something: they are not told in percent."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A measured value, and its 95% interval where it has one."""

    value: float
    interval: tuple[float, float] | None = None

    def __str__(self) -> str:
        low_high = "" if self.interval is None else " [{:.3g}, {:.3g}]".format(*self.interval)
        return f"{self.value:.4g}{low_high}"


def reading(evaluation: Mapping[str, Any] | None, name: str) -> Reading | None:
    """A number of an evaluation's record, with its interval; None where it was not measured."""
    if evaluation is None:
        return None
    value = evaluation.get(name, evaluation.get("pass_at", {}).get(name))
    if value is None:
        return None
    interval = evaluation.get("intervals", {}).get(name)
    return Reading(value, None if interval is None else (interval[0], interval[1]))
