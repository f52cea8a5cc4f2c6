"""Addition, split by unordered pair: whoever has seen 7 + 5 has seen 5 + 7, so both stand on one side."""

from __future__ import annotations

from hashlib import sha256
from itertools import combinations_with_replacement

from tasks.examples import Example, example, user

Pair = tuple[int, int]


def one_digit() -> tuple[list[Example], list[Example]]:
    """All 45 unordered pairs of 1 … 9: 33 to train on, 12 held out."""
    return _addition("addition-1digit", range(1, 10), heldout=12)


def two_digits() -> tuple[list[Example], list[Example]]:
    """All 4,095 unordered pairs of 10 … 99: 100 held out."""
    return _addition("addition-2digit", range(10, 100), heldout=100)


def _addition(name: str, numbers: range, *, heldout: int) -> tuple[list[Example], list[Example]]:
    pairs = list(combinations_with_replacement(numbers, 2))
    # Ordered by digest: a shuffle that no version of a random generator can change.
    pairs.sort(key=lambda pair: sha256(f"{name}/{pair[0]}+{pair[1]}".encode()).digest())
    return _both_orders(name, pairs[heldout:]), _both_orders(name, pairs[:heldout])


def _both_orders(name: str, pairs: list[Pair]) -> list[Example]:
    return [
        example(user(f"What is {a} + {b}?"), str(a + b), id=f"{name}/{a}+{b}", key=f"{name}/{min(a, b)}+{max(a, b)}")
        for x, y in pairs
        for a, b in sorted({(x, y), (y, x)})
    ]
