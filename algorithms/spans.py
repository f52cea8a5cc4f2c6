"""A quantity that is planned: at least, typically, at most. What a run does not leave open has all three alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """Three values of one quantity, in its own unit.

    Raises:
        ValueError: they are not in order.
    """

    least: float
    typical: float
    most: float

    def __post_init__(self) -> None:
        if not self.least <= self.typical <= self.most:
            raise ValueError(f"a span is in order, least first, and not {self.least}, {self.typical}, {self.most}")

    @classmethod
    def exactly(cls, value: float) -> Span:
        """Nothing left open."""
        return cls(value, value, value)

    @property
    def exact(self) -> bool:
        """Whether it is one value."""
        return self.least == self.most

    @property
    def values(self) -> tuple[float, float, float]:
        """All three, least first."""
        return self.least, self.typical, self.most

    def map(self, rises: Callable[[float], float]) -> Span:
        """Each value by a function that never falls."""
        return Span(rises(self.least), rises(self.typical), rises(self.most))

    def __add__(self, other: Span) -> Span:
        return Span(self.least + other.least, self.typical + other.typical, self.most + other.most)

    def __mul__(self, factor: float) -> Span:
        return self.map(lambda value: value * factor)

    def __truediv__(self, divisor: float) -> Span:
        return self.map(lambda value: value / divisor)

    def as_json(self) -> dict[str, float]:
        """By name."""
        return {"least": self.least, "typical": self.typical, "most": self.most}


Spans = dict[str, Span]
"""Quantities of one kind by name, operations for example."""


def spans_of(least: Mapping[str, float], typical: Mapping[str, float], most: Mapping[str, float]) -> Spans:
    """Three counts put together; a name that one of them lacks is 0 there."""
    names = sorted({*least, *typical, *most})
    return {name: Span(least.get(name, 0), typical.get(name, 0), most.get(name, 0)) for name in names}


def summed(parts: Iterable[Mapping[str, Span]]) -> Spans:
    """Name by name."""
    total: Spans = {}
    for part in parts:
        for name, span in part.items():
            total[name] = total[name] + span if name in total else span
    return total


def added(parts: Iterable[Span | None]) -> Span | None:
    """The sum; None where a part is not known, or there is none."""
    total: Span | None = None
    for part in parts:
        if part is None:
            return None
        total = part if total is None else total + part
    return total
