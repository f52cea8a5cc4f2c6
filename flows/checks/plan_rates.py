"""Time and money: what makes seconds of floating point operations, and a price of everything."""

from __future__ import annotations

from dataclasses import dataclass

from algorithms.gpus import Gpu
from algorithms.spans import Span, Spans, added
from tasks.prices import Prices

UTILIZATION = 0.4
"""The share of a GPU's peak that is taken to be had where no price file says."""


@dataclass(frozen=True, slots=True)
class Bill:
    """What a part of a run comes to.

    Args:
        operations: by the wire's names.
        tokens: "prefill", "sampled", "trained", as the ledger counts them.
        flops: floating point operations; None where a model's sizes are not known.
        seconds: on the price file's GPUs, or the one that is named; None without either.
        cost: in the price file's currency; None without one.
    """

    operations: Spans
    tokens: Spans
    flops: Span | None
    seconds: Span | None
    cost: Span | None

    @property
    def limited(self) -> dict[str, Span | None]:
        """What a `[budget]` limits, by the name of its limit."""
        return {
            "max_operations": added(self.operations.values()),
            "max_tokens": added(self.tokens.values()),
            "max_cost": self.cost,
            "max_minutes": self.seconds / 60 if self.seconds else None,
        }


@dataclass(frozen=True, slots=True)
class Rates:
    """A price file, and the speed of the GPUs that time is reckoned on."""

    prices: Prices | None
    flops_per_second: float | None
    told: str | None
    """The GPUs, for people."""

    @classmethod
    def of(cls, prices: Prices | None, gpu: Gpu | None) -> Rates:
        """`gpu` takes the place of the price file's own; its count and utilization stay."""
        section = prices.gpu if prices else None
        hardware = gpu or (section.hardware if section else None)
        if hardware is None:
            return cls(prices, None, None)
        count, share = (section.count, section.utilization) if section else (1, UTILIZATION)
        speed = count / hardware.seconds(1, utilization=share)
        return cls(prices, speed, f"{count} × {hardware.name} at {share:.0%} of its peak")

    @property
    def currency(self) -> str | None:
        """Of all costs; None without prices."""
        return self.prices.currency if self.prices else None

    def bill(self, operations: Spans, tokens: Spans, flops: Span | None) -> Bill:
        """All that a part of a run comes to."""
        seconds = flops / self.flops_per_second if flops and self.flops_per_second else None
        return Bill(operations, tokens, flops, seconds, self._cost(operations, tokens, seconds))

    def _cost(self, operations: Spans, tokens: Spans, seconds: Span | None) -> Span | None:
        if self.prices is None:
            return None
        costs = [
            self.prices.cost(_at(place, operations), _at(place, tokens), seconds.values[place] if seconds else 0)
            for place in range(3)
        ]
        return Span(*costs)


def _at(place: int, spans: Spans) -> dict[str, float]:
    return {name: span.values[place] for name, span in spans.items()}
