"""Completions that ran into the length limit: cut off, so that their reward says little about them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def is_overlong(sequence: Mapping[str, Any]) -> bool:
    """Whether the completion was cut off at max_tokens instead of ending by itself."""
    return bool(sequence["stop_reason"] == "length")


def soft_overlong_penalty(length: int, *, max_length: int, cache: int) -> float:
    """What to add to a reward for a completion of `length` tokens: 0 down to −1 over the last `cache` tokens.

    0 up to max_length − cache, then falling linearly to −1 at max_length, and −1 beyond. Source: DAPO,
    arXiv 2503.14476, equation 13.

    Raises:
        ValueError: a negative length, or a cache outside 1 … max_length.
    """
    if length < 0:
        raise ValueError(f"length is {length}: it counts a completion's tokens")
    if not 1 <= cache <= max_length:
        raise ValueError(f"cache is {cache}: with max_length={max_length} it must be in 1 … {max_length} tokens")
    return max(-1.0, min(0.0, (max_length - cache - length) / cache))
