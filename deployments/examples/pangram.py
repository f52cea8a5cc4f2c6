"""A verifier for test-time training: a reward that knows no right answer and can always be beaten by a better one."""

from __future__ import annotations

from tasks.completion import Completion

ALPHABET = 26
FREE_LETTERS = 40
"""So many letters cost nothing; the best known pangrams in everyday words have about thirty-five."""


def distinct_letters(completion: Completion) -> float:
    """Different letters a–z of the reply over 26, less a hundredth for every letter beyond the fortieth; 1 at best."""
    letters = [letter for letter in completion.text.lower() if "a" <= letter <= "z"]
    return len(set(letters)) / ALPHABET - max(0, len(letters) - FREE_LETTERS) / 100
