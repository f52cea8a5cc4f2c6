"""Solutions of one problem: what attempts came to, and what later attempts may start from."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from algorithms.advantages import Reward, is_scored


@dataclass(frozen=True, slots=True)
class Solution:
    """A state to start from. Equal texts are one solution: `id` is made of the text.

    `reward` is None for an attempt that could not be scored, and for the root.
    """

    id: str
    text: str
    reward: Reward
    parent_id: str | None
    cycle: int

    @classmethod
    def of(cls, text: str, reward: Reward, parent: Solution, cycle: int) -> Solution:
        """What an attempt that started from `parent` in `cycle` came to."""
        return cls(hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16], text, reward, parent.id, cycle)

    @property
    def value(self) -> float:
        """The reward, −∞ where there is none."""
        return self.reward if is_scored(self.reward) else float("-inf")


ROOT = Solution(id="root", text="", reward=None, parent_id=None, cycle=-1)
"""The bare problem."""


def ancestors(solution: Solution, kept: Mapping[str, Solution]) -> Iterator[str]:
    """The ids of what a solution came from, nearest first, as far back as they are among `kept`."""
    seen = {solution.id}
    # With a reward that changes from call to call a text may come back as a descendant of its own.
    while (parent := kept.get(solution.parent_id or "")) is not None and parent.id not in seen:
        yield parent.id
        seen.add(parent.id)
        solution = parent


def related(one: Solution, other: Solution, kept: Mapping[str, Solution]) -> bool:
    """Whether one came from the other; the root, from which all came, does not count."""
    if ROOT in (one, other):
        return False
    return one.id in ancestors(other, kept) or other.id in ancestors(one, kept)
