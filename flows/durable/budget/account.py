"""An account: the limits of a budget, held against what is used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from flows.amounts import amount_told
from flows.config import BudgetConfig
from flows.config.budget import KINDS, OF_THE_MONTH
from flows.durable.budget.used import FREE, Used
from flows.early_end import BudgetReachedError
from tasks.prices import Prices
from whitney.types import RunUsage, Usage

NOISE = 1e-9
"""Of sums of money, as a share of the limit."""


class Account:
    """Limits by their names in the configuration, and what counts towards them.

    Args:
        name: what begins a limit's name when people are told of it: "budget".
        owner: the flow run whose labels say by how much a person has raised a limit.
        config: the budget; what to do where a limit is reached.
        kinds: of which of its limits this is the account, and what each is a limit of: `OF_THE_RUN`, say.
        spent: what was billed before.
        prices: of "cost"; None where nothing costs money.
        seconds: how long the run has been at work.
    """

    __slots__ = ("_kinds", "config", "counted", "limits", "name", "owner", "prices", "reached")

    def __init__(
        self,
        name: str,
        owner: str,
        config: BudgetConfig,
        kinds: Mapping[str, str],
        *,
        spent: RunUsage,
        prices: Prices | None = None,
        seconds: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.name = name
        self.owner = owner
        self.config = config
        self.limits = config.limits(kinds)
        self.prices = prices
        self.counted = Used(spent, prices, seconds)
        self.reached: BudgetReachedError | None = None
        self._kinds = kinds

    @property
    def of_the_month(self) -> bool:
        """Whether it is shared with other runs, which post at the same time."""
        return self._kinds is OF_THE_MONTH

    def require(
        self, operations: Mapping[str, int], tokens: Usage, what: str, *, seconds: float = 0.0, ends: bool = False
    ) -> None:
        """Make sure that so much fits. Of what `ends` a run the operations alone count: for it the rest was kept.

        Raises:
            BudgetReachedError: it does not; names the limit.
        """
        for field, limit in self.limits.items():
            kind, used = self._kinds[field], self.used(field)
            more = 0.0 if self.of_the_month else seconds  # a month has no clock of its own
            if ends and kind != "operations":
                continue
            # Of time what is used, and no later look at the clock.
            after = used + more / 60 if kind == "minutes" else self.counted.of(kind, operations, tokens, more)
            # Time cannot be kept in reserve: a run whose minutes are over ends.
            if after > limit * (1 + NOISE) or (kind == "minutes" and used >= limit):
                self.reached = BudgetReachedError(
                    f"{self.name}.{field}",
                    limit=limit,
                    used=used,
                    needed=after - used,
                    what=what,
                    ends=ends,
                    currency=self.currency,
                )
                raise self.reached

    def after(self, field: str, operations: Mapping[str, int], tokens: Usage, seconds: float) -> float:
        """What would be used of a limit after so much more."""
        more = 0.0 if self.of_the_month else seconds
        return self.counted.of(self._kinds[field], operations, tokens, more)

    def has(self, reached: BudgetReachedError) -> bool:
        """Whether it is a limit of this account's. A run's own and its project's month go by one name."""
        return reached.account == self.name and reached.field in self._kinds

    def used(self, field: str) -> float:
        """What is used of a limit."""
        return self.counted.of(self._kinds[field], {}, FREE, 0.0)

    @property
    def currency(self) -> str:
        """Of its limits on money; "" where it has none."""
        return self.prices.currency if self.prices else ""

    def in_words(self, field: str, amount: float) -> str:
        """An amount of what is limited."""
        return amount_told(KINDS[field], amount, self.currency)

    def told(self) -> dict[str, dict[str, Any]]:
        """Every limit and what is used of it, for the summary."""
        return {
            f"{self.name}.{field}": {"limit": limit, "used": round(self.used(field), 6)}
            for field, limit in self.limits.items()
        }

    def raise_limit(self, field: str, more: float) -> None:
        """Raise a limit by so much; by 0: lift it."""
        self.reached = None
        if more and field in self.limits:
            self.limits[field] += more
        else:
            self.limits.pop(field, None)
