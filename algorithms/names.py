"""Names that a person may misspell: algorithms, fields, rewards, data sets."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`"did you mean 'grpo'? "`, to be put before the rest of a message; "" when no known name is near."""
    near = get_close_matches(word, list(known), n=1)
    return f"did you mean {near[0]!r}? " if near else ""
