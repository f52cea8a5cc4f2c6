"""The budget's gate: asked before each operation is posted, whoever posts it, and before each block.

What a run needs to end is kept in reserve: the export, and within a block its `save_state`. Where the next operation
would take of that, the gate closes: nothing passes any more but the export of the last saved block.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from flows.config.budget import KINDS
from flows.counts.parts import EXPORT, SAVE
from flows.durable.budget.account import Account
from flows.durable.budget.month import Month
from flows.durable.budget.most_usage import most_usage
from flows.durable.budget.used import FREE
from flows.durable.telling import warn
from flows.early_end import BudgetReachedError
from whitney.client import WhitneyClient
from whitney.types import Usage


class Budget:
    """The accounts of one attempt: its own, a pipeline's, a project's month. Without one everything passes."""

    __slots__ = ("_accounts", "_reserve", "_touched", "_warned", "asks", "reached")

    def __init__(self, accounts: Sequence[Account] = ()) -> None:
        self._accounts = list(accounts)
        self._warned: set[str] = set()
        self._reserve = Counter({EXPORT: 1})
        self._touched = False
        self.asks = True
        self.reached: BudgetReachedError | None = None

    def begin(
        self,
        what: str,
        needed: Mapping[str, int],
        *,
        tokens: Sequence[Usage] = (FREE,),
        seconds: float = 0.0,
        saves: int = 0,
    ) -> None:
        """Something is about to begin that needs so much: a block, a measurement.

        Args:
            what: as people call it.
            needed: operations by kind, without what is kept in reserve.
            tokens: amounts that have to fit, each by itself.
            seconds: how long it will take.
            saves: how many `save_state` end it.

        Raises:
            BudgetReachedError: it would not come to its end, so it is not begun.
        """
        self._reserve = Counter({EXPORT: 1, SAVE: saves})
        self._touched = False
        for most in tokens:
            self._require(needed, most, what, seconds)

    def admit(self, kind: str, payload: Mapping[str, Any]) -> Usage:
        """Let an operation through, and count it with the most that it may be billed for.

        Raises:
            BudgetReachedError: it would take of what the run needs to end; so would every other from now on.
        """
        closes = self._reserve[kind] > 0
        if self.reached is not None and not (closes and kind == EXPORT):
            raise self.reached
        most = most_usage(kind, payload)
        self._require({kind: 1}, most, "the export" if kind == EXPORT else kind, ends=closes)
        self._reserve[kind] -= closes
        self._touched = True
        for account in self._accounts:
            account.counted.add(kind, most)
        self._warn()
        return most

    def settle(self, most: Usage, billed: Usage) -> None:
        """An operation has ended."""
        for account in self._accounts:
            account.counted.settle(most, billed)

    async def look_again(self, client: WhitneyClient) -> None:
        """Ask the endpoint again for what is shared with other runs."""
        for account in self._accounts:
            if isinstance(account, Month):
                await account.look_again(client)

    @property
    def counts_more_than_operations(self) -> bool:
        """Whether there is a limit on tokens, money or time."""
        return any(KINDS[field] != "operations" for account in self._accounts for field in account.limits)

    @property
    def pauses(self) -> bool:
        """Whether a person is to be asked about the limit that was reached, and has not said no to it."""
        return self.asks and self.reached is not None and self.account_of(self.reached).config.on_exceed == "pause"

    def account_of(self, reached: BudgetReachedError) -> Account:
        """Whose limit it is."""
        return next(one for one in self._accounts if one.has(reached))

    def reopen(self, more: float) -> None:
        """Let operations through again, with so much more of the limit that was reached; 0: without it."""
        assert self.reached is not None
        self.account_of(self.reached).raise_limit(self.reached.field, more)
        self._warned.discard(self.reached.path)
        self.reached, self._touched = None, False

    @property
    def interrupted(self) -> bool:
        """Whether the gate has closed in the middle of something, with operations of it posted."""
        return self.reached is not None and self._touched

    @property
    def share(self) -> float | None:
        """The share used of the limit that is nearest, 0 to 1; None without a limit."""
        return max((share for _, _, share in self._shares()), default=None)

    def told(self) -> dict[str, Any] | None:
        """What is used of each limit, for the summary; None without a limit."""
        if not self._accounts:
            return None
        used = {path: row for one in self._accounts for path, row in one.told().items()}
        return {"used": used, "reached": self.reached.path if self.reached else None}

    def _require(
        self, operations: Mapping[str, int], most: Usage, what: str, seconds: float = 0.0, *, ends: bool = False
    ) -> None:
        """So much, and what is kept in reserve: for what `ends` a block or the run, and is of it."""
        if self.reached is not None and not ends:
            raise self.reached
        needed = Counter(operations) if ends else Counter(operations) + self._reserve
        try:
            for account in self._accounts:
                account.require(needed, most, what, seconds=seconds, ends=ends)
        except BudgetReachedError as reached:
            self.reached = reached
            raise

    def _warn(self) -> None:
        for account, field, share in self._shares():
            path = f"{account.name}.{field}"
            if share >= account.config.warn_at and path not in self._warned:
                self._warned.add(path)
                limit, used = account.limits[field], account.used(field)
                warn(
                    f"{share:.0%} of {path} = {account.in_words(field, limit)} is used "
                    f"({account.in_words(field, used)})"
                )

    def _shares(self) -> list[tuple[Account, str, float]]:
        return [(one, field, one.used(field) / limit) for one in self._accounts for field, limit in one.limits.items()]
