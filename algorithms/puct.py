"""The best solutions found so far, as states to start the next attempts from, chosen by PUCT.

A group of attempts continues one solution of the buffer, or starts from the bare problem (the root, always there).
Source: TTT-Discover, arXiv 2601.16175, section 3.2; `puct_scores` has the formula. Chosen where that leaves room:

- an expansion leaves its best two children; a full buffer lets its lowest reward go, the youngest of equals first;
- visits count for a solution and for its ancestors that are still in the buffer, and always for the root;
- the picks of one cycle are not each other's ancestors (the root excepted), so that groups explore apart; where that
  leaves too few, they are repeated from the first.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import cycle, islice
from typing import Any

from algorithms.puct_score import puct_scores
from algorithms.solutions import ROOT, Solution, ancestors, related

__all__ = ["ROOT", "Buffer", "Solution", "puct_scores"]


class Buffer:
    """Solutions by age, and how often and with what success each was started from. Deterministic: no draw is made."""

    __slots__ = ("_best_child", "_solutions", "_visits", "capacity", "children_kept", "rollouts")

    def __init__(self, capacity: int = 1000, children_kept: int = 2) -> None:
        """An empty buffer for `capacity` solutions beside the root, and `children_kept` of each expansion.

        Raises:
            ValueError: either is below 1.
        """
        if capacity < 1 or children_kept < 1:
            raise ValueError(f"capacity is {capacity} and children_kept is {children_kept}: both must be at least 1")
        self.capacity, self.children_kept, self.rollouts = capacity, children_kept, 0
        self._solutions: dict[str, Solution] = {ROOT.id: ROOT}
        self._visits: dict[str, int] = {}
        self._best_child: dict[str, float] = {}

    @property
    def solutions(self) -> list[Solution]:
        """What is kept, oldest first, without the root."""
        return [solution for solution in self._solutions.values() if solution != ROOT]

    @property
    def best(self) -> Solution | None:
        """The highest reward so far, the oldest of equals; None before the first solution."""
        return max(self.solutions, key=lambda solution: solution.value, default=None)

    def add(self, parent: Solution, children: Sequence[Solution]) -> None:
        """Record what all attempts of one group that started from `parent` came to, the failed ones included.

        Every one counts as a visit. Kept are the best few with a text and a finite reward that are not there already.
        """
        self.rollouts += len(children)
        for visited in {ROOT.id, parent.id, *ancestors(parent, self._solutions)} & self._solutions.keys():
            self._visits[visited] = self._visits.get(visited, 0) + len(children)
        usable = [child for child in children if child.text and math.isfinite(child.value)]
        if usable and parent.id in self._solutions:
            best = max(child.value for child in usable)
            self._best_child[parent.id] = max(best, self._best_child.get(parent.id, best))
        by_text = {child.id: child for child in sorted(usable, key=lambda child: child.value)}
        new = [child for child in by_text.values() if child.id not in self._solutions]
        new.sort(key=lambda child: -child.value)
        self._solutions |= {child.id: child for child in new[: self.children_kept]}
        self._make_room()

    def select(self, count: int, *, group_size: int, c: float = 1.0) -> list[Solution]:
        """The `count` states that the next groups of `group_size` completions start from, best score first.

        Raises:
            ValueError: a number below 1, or a negative c.
        """
        if count < 1 or group_size < 1 or not 0 <= c < math.inf:
            raise ValueError(f"count is {count}, group_size {group_size}, c {c}: they must be ≥ 1, ≥ 1 and ≥ 0")
        states = list(self._solutions.values())
        children = [self._best_child.get(state.id) for state in states]
        visits = [self._visits.get(state.id, 0) for state in states]
        scores = puct_scores(
            [state.reward for state in states], children, visits, self.rollouts, group_size=group_size, c=c
        )
        picked: list[Solution] = []
        for place in sorted(range(len(states)), key=lambda i: -scores[i]):  # stable: the older of equals first
            if not any(related(states[place], other, self._solutions) for other in picked):
                picked.append(states[place])
        return list(islice(cycle(picked), count))

    def to_json(self) -> dict[str, Any]:
        """Everything, as what JSON holds exactly."""
        return {
            "capacity": self.capacity,
            "children_kept": self.children_kept,
            "rollouts": self.rollouts,
            "visits": dict(self._visits),
            "best_child": dict(self._best_child),
            "solutions": [asdict(solution) for solution in self.solutions],
        }

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Buffer:
        """The buffer that `to_json` was asked of.

        Raises:
            ValueError: a part is missing or is not what `to_json` writes.
        """
        try:
            buffer = cls(saved["capacity"], saved["children_kept"])
            buffer.rollouts = saved["rollouts"]
            buffer._visits, buffer._best_child = dict(saved["visits"]), dict(saved["best_child"])
            buffer._solutions |= {one["id"]: Solution(**one) for one in saved["solutions"]}
        except (KeyError, TypeError) as error:
            raise ValueError(f"this is no saved buffer of solutions: {error!r}") from None
        return buffer

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the whole content: two buffers with one fingerprint select alike for ever."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()

    def _make_room(self) -> None:
        while len(self._solutions) - 1 > self.capacity:
            lowest = min(reversed(self.solutions), key=lambda solution: solution.value)
            for by_id in (self._solutions, self._visits, self._best_child):
                by_id.pop(lowest.id, None)
