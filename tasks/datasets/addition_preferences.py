"""Preferences about one-digit addition: the bare right sum before a wrong one, and before a reply that talks around it.

Two pairs a question, and the split of `addition-1digit`: its held-out questions are held out here.
"""

from __future__ import annotations

from hashlib import sha256

from tasks.datasets.addition import one_digit
from tasks.examples import Example, Preference, example, preference

ERRORS = (-3, -2, -1, 1, 2, 3)

RAMBLING = (
    "That is a good question! To add {a} and {b}, we first have to ask ourselves what {a} really means, and then",
    "Let me think about it. Addition is one of the four basic operations of arithmetic. There are many ways to add "
    "two numbers such as {a} and {b}. One of them is to count on your fingers, another is to draw a number line",
    "Sure, I can help you with that. Before we find the sum of {a} and {b}, here are some facts about numbers that you "
    "may find interesting: numbers are used everywhere, and people have used them for a long time",
    "The sum of two numbers is what you get when you put them together. Imagine that you have {a} apples, and that a "
    "friend brings {b} more of them. Now imagine that you put all of these apples on a table, and that you",
)


def one_digit_preferences() -> tuple[list[Preference], list[Preference]]:
    """Both pairs of all 81 questions: 118 pairs to train on, 44 held out; `answer` is the sum."""
    train, heldout = one_digit()
    return [pair for item in train for pair in _pairs(item)], [pair for item in heldout for pair in _pairs(item)]


def _pairs(item: Example) -> tuple[Preference, Preference]:
    right = int(item.answer or "")
    a, b = item.id.rpartition("/")[2].split("+")
    digest = sha256(item.id.encode()).digest()  # no version of a random generator can change what it chooses
    # A sum below 2 is not a mistake that anybody makes about two numbers from 1 on.
    wrong = [right + error for error in ERRORS if right + error >= 2]
    rejected = {
        "wrong": str(wrong[digest[0] % len(wrong)]),
        "rambling": RAMBLING[digest[1] % len(RAMBLING)].format(a=a, b=b),
    }
    near, talk = (
        preference(example(item.messages, item.answer, id=f"{item.id}/{name}", key=item.key), str(right), reply)
        for name, reply in rejected.items()
    )
    return near, talk
