"""Time and money: what makes seconds of floating point operations, and a price of everything."""

from __future__ import annotations

from collections.abc import Iterator

from algorithms.spans import Span, Spans, added
from flows.plan.bill import Bill
from flows.plan.hardware import Hardware
from flows.plan.terms import Terms
from tasks.prices import OPERATIONS, TOKENS, UTILIZATION, Prices

PRICED = ("operations", "tokens", "gpu_time")
"""What costs are of."""


class Rates:
    """A price file, and the GPUs that time is reckoned on."""

    def __init__(self, terms: Terms) -> None:
        self._file = terms.price_file
        section = terms.prices.gpu if terms.prices else None
        gpu = terms.gpu or (section.hardware if section else None)
        shape = (section.count, section.utilization) if section else (1, UTILIZATION)
        self.hardware = Hardware(gpu, *shape) if gpu else None
        self._others = section if section and gpu and section.kind != gpu.name and section.per_hour else None
        prices = terms.prices
        self._unfilled = prices is not None and prices.empty
        if prices and self._others:  # an hour of one GPU has not the price of another's
            prices = prices.model_copy(update={"gpu": None})
        self.prices: Prices | None = None if prices is None or prices.empty else prices

    @property
    def currency(self) -> str | None:
        """What everything is priced in; None where nothing is."""
        return self.prices.currency if self.prices else None

    def bill(self, operations: Spans, tokens: Spans, flops: Span | None) -> Bill:
        """All that a part of a run comes to."""
        seconds = self.hardware.seconds(flops) if flops and self.hardware else None
        parts = self._cost_parts(operations, tokens, seconds)
        return Bill(operations, tokens, flops, seconds, added(parts.values()), parts)

    def warnings(self, bill: Bill) -> Iterator[str]:
        """What is not in the money of a whole run, and its reader may think that it is."""
        if self._others:
            yield (
                f"gpu.per_hour of {self._file} is the price of the {self._others.kind}, so time on the "
                f"{self.hardware.gpu.name if self.hardware else ''} costs nothing here."
            )
        if self._unfilled:
            yield f"No price in {self._file} is above 0, so there is no cost: write what you pay."
        if self.prices and self.prices.per_second and bill.seconds is None:
            yield "The cost is without GPU time: that takes FLOPs, and these are not known."

    def notes(self, bill: Bill) -> Iterator[str]:
        """How time and money of a whole run are reckoned."""
        if missing := list(self._missing(bill)):
            yield f"Cost: without a price above 0 in {self._file}, and so counted as 0: {', '.join(missing)}."
        if self.hardware:
            share = f"{self.hardware.utilization:.0%} of its peak"
            yield f"Time: FLOPs on {self.hardware.name} at {share}. Rewards, network and queues come on top."

    def _cost_parts(self, operations: Spans, tokens: Spans, seconds: Span | None) -> Spans:
        """Those that have a price."""
        if self.prices is None:
            return {}
        costs = [
            self.prices.parts(_at(place, operations), _at(place, tokens), seconds.values[place] if seconds else 0)
            for place in range(3)
        ]
        priced = (any(self.prices.operations.values()), any(self.prices.tokens.values()), self.prices.per_second)
        names = [name for name, price in zip(PRICED, priced, strict=True) if price]
        return {name: Span(*(cost[name] for cost in costs)) for name in names}

    def _missing(self, bill: Bill) -> Iterator[str]:
        """What the run takes that has no price."""
        if self.prices is None:
            return
        kinds = [kind for kind in OPERATIONS if kind in bill.operations and not self.prices.operations.get(kind)]
        if kinds:
            yield from ["operations"] if len(kinds) == len(bill.operations) else kinds
        read = [kind for kind in TOKENS if not self.prices.tokens.get(kind)]
        if read:
            yield from ["tokens"] if len(read) == len(TOKENS) else (f"{kind} tokens" for kind in read)
        if not (self.prices.per_second or self._others):
            yield "GPU time"


def _at(place: int, spans: Spans) -> dict[str, float]:
    return {name: span.values[place] for name, span in spans.items()}
