"""Names that a person may misspell: algorithms, fields, rewards, data sets."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`"did you mean 'grpo'? "`, to be put before the rest of a message; "" when no known name is near.

    Of names that are about as near, one made of the same letters comes first: 'gpro' is 'grpo' and not 'gspo'.
    """
    near = get_close_matches(word, list(known))
    nearest = min(near, key=lambda name: sorted(name) != sorted(word), default=None)
    return f"did you mean {nearest!r}? " if nearest else ""
