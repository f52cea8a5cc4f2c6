"""What has been billed so far, or may yet be: an operation counts from the moment it is let through."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from tasks.prices import TOKENS, Prices
from whitney.types import RunUsage, Usage

FREE = Usage()


class Used:
    """Operations and tokens by kind, and the time at work.

    Args:
        spent: what was billed before.
        prices: of "cost"; None where nothing costs money.
        seconds: how long the run has been at work.
    """

    __slots__ = ("_operations", "_prices", "_seconds", "_tokens")

    def __init__(self, spent: RunUsage, prices: Prices | None, seconds: Callable[[], float]) -> None:
        self._prices = prices
        self._seconds = seconds
        self.restart(spent)

    def restart(self, spent: RunUsage) -> None:
        """Count from what the endpoint says."""
        self._operations = Counter(spent.operations)
        self._tokens = Counter({name: getattr(spent, f"{name}_tokens") for name in TOKENS})

    def add(self, kind: str, most: Usage) -> None:
        """An operation is about to be posted, which may be billed for so much."""
        self._operations[kind] += 1
        self._tokens.update({name: getattr(most, f"{name}_tokens") for name in TOKENS})

    def settle(self, most: Usage, billed: Usage) -> None:
        """One has ended: what it was billed for stands in place of what it might have been, as far as that is said."""
        said = [name for name in TOKENS if f"{name}_tokens" in billed.model_fields_set]
        self._tokens.update({n: getattr(billed, f"{n}_tokens") - getattr(most, f"{n}_tokens") for n in said})

    def of(self, kind: str, operations: Mapping[str, int], tokens: Usage, seconds: float) -> float:
        """Of "operations", "tokens", "cost" or "minutes": what is used, and so much more."""
        more = Counter(operations)
        if kind == "operations":
            return self._operations.total() + more.total()
        if kind == "minutes":
            return (self._seconds() + seconds) / 60
        total: dict[str, int] = {name: self._tokens[name] + getattr(tokens, f"{name}_tokens") for name in TOKENS}
        if kind == "tokens":
            return sum(total.values())
        assert self._prices is not None  # the configuration has it so
        return self._prices.cost(self._operations + more, total, self._seconds() + seconds)
