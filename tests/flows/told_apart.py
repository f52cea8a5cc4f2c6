"""Rewards that are a function of texts alone, like chance and the same every time."""

from __future__ import annotations

from hashlib import sha256

from tasks.completion import Completion

GOLDEN = (5**0.5 - 1) / 2
"""Its multiples fill 0…1 as evenly as can be."""


def distinct(completion: Completion) -> float:
    """Two completions that differ are not worth the same."""
    return _share(completion.text)


def coin(completion: Completion) -> float:
    """1 as often as the prompt is easy, else 0; prompts, by the numbers in them, are of all difficulties alike."""
    question = str(completion.prompt[-1]["content"])
    numbers = int("".join(filter(str.isdigit, question)))
    return float(_share(question, completion.text) < numbers * GOLDEN % 1)


def _share(*texts: str) -> float:
    return int.from_bytes(sha256(repr(texts).encode()).digest()[:6], "big") / 2**48
