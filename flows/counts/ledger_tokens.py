"""Tokens by the ledger's words, to be added up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import reduce
from operator import add


@dataclass(frozen=True, slots=True)
class Tokens:
    """By the ledger's words; `frozen` is of `prefill` what a teacher or a reference reads."""

    prefill: float = 0
    sampled: float = 0
    trained: float = 0
    frozen: float = 0

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(
            self.prefill + other.prefill,
            self.sampled + other.sampled,
            self.trained + other.trained,
            self.frozen + other.frozen,
        )

    def __mul__(self, times: float) -> Tokens:
        return Tokens(self.prefill * times, self.sampled * times, self.trained * times, self.frozen * times)

    @property
    def by_kind(self) -> dict[str, float]:
        """By the ledger's words."""
        return {"prefill": self.prefill, "sampled": self.sampled, "trained": self.trained}

    @property
    def counted(self) -> float:
        """All that are billed."""
        return sum(self.by_kind.values())

    def at_least(self, other: Tokens) -> Tokens:
        """The larger of both, word by word."""
        return Tokens(
            max(self.prefill, other.prefill),
            max(self.sampled, other.sampled),
            max(self.trained, other.trained),
            max(self.frozen, other.frozen),
        )

    def put_to_use(self, share: float) -> Tokens:
        """With so much of what is drawn put to a frozen run, and trained; the rest is drawn in vain."""
        read = self.prefill - self.frozen
        frozen = self.frozen * share
        return replace(self, prefill=read + frozen, trained=self.trained * share, frozen=frozen)


NOTHING = Tokens()


def total(parts: Iterable[Tokens]) -> Tokens:
    """The sum."""
    return reduce(add, parts, NOTHING)
