"""The rewards that are shipped: short functions of a completion, each to a number between 0 and 1 (or −1 and 0)."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from algorithms.overlong import soft_overlong_penalty
from tasks.completion import Completion


class UnscorableError(ValueError):
    """This completion cannot be scored, through no fault of its own; the message is the reason that is counted."""


# A sign counts only where no operand stands before it: "7-5" ends in 5, "x = -5" in −5. A comma groups exactly three
# digits, and a full stop at a sentence's end is no decimal point.
_NUMBER = re.compile(
    r"(?:(?<![\w.)\]])[-+−])?"
    r"(?:(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|(?<![0-9])\.[0-9]+)"
    r"(?:[eE][-+]?[0-9]{1,3}(?![0-9]))?"
)


def exact(completion: Completion, *, ignore_case: bool = False) -> float:
    """1 if the reply is the answer, white space around either apart."""
    fold = str.casefold if ignore_case else str
    return float(fold(completion.text.strip()) == fold(reference_answer(completion).strip()))


def number(completion: Completion, *, tolerance: float = 0.0) -> float:
    """1 if the last number in the reply equals the last number in the answer, within `tolerance`.

    Thousands separators, signs, decimals and exponents are read: 1,234.50 is 1234.5.
    """
    wanted = last_number(reference_answer(completion))
    if wanted is None:
        raise UnscorableError("the example's answer holds no number")
    found = last_number(completion.text)
    return float(found is not None and abs(found - wanted) <= Decimal(str(tolerance)))


def contains(completion: Completion, *, ignore_case: bool = False) -> float:
    """1 if the answer stands in the reply as whole words: Rome is not found in Romeo."""
    answer = reference_answer(completion).strip()
    if not answer:
        raise UnscorableError("the example's answer is empty")
    flags = re.IGNORECASE if ignore_case else re.NOFLAG
    return float(re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", completion.text, flags) is not None)


def regex(completion: Completion, *, pattern: str) -> float:
    """1 if `pattern` is found in the reply; a group named `answer` must also equal the example's answer."""
    found = re.search(pattern, completion.text)
    if found is None:
        return 0.0
    named = found.groupdict()
    return float("answer" not in named or named["answer"] == reference_answer(completion).strip())


def length(completion: Completion, *, target: int) -> float:
    """1 at `target` tokens, falling in a straight line to 0 at none and at twice as many."""
    return max(0.0, 1.0 - abs(completion.token_count - target) / target)


def soft_overlong(completion: Completion, *, max_length: int, cache: int) -> float:
    """0 while `cache` of `max_length` tokens are left, then down to −1 at `max_length` (DAPO, arXiv 2503.14476)."""
    return soft_overlong_penalty(completion.token_count, max_length=max_length, cache=cache)


BUILT_IN: dict[str, Callable[..., float]] = {
    "exact": exact,
    "number": number,
    "contains": contains,
    "regex": regex,
    "length": length,
    "soft_overlong": soft_overlong,
}

MAY_HANG = frozenset({"regex"})
"""Built-ins that run code of the user's (a pattern can take for ever), and so go to a process that can be killed."""


def last_number(text: str) -> Decimal | None:
    """The last number in a text, exactly as it is written."""
    found = deque(_NUMBER.finditer(text), maxlen=1)
    return Decimal(found[0].group().replace(",", "").replace("−", "-")) if found else None


def check_arguments(name: str, arguments: Mapping[str, Any]) -> None:
    """What a signature cannot say about a built-in's arguments.

    Raises:
        ValueError: a pattern that does not compile, a target below 1, a negative tolerance.
    """
    if name == "regex":
        try:
            re.compile(arguments["pattern"])
        except (re.error, TypeError) as error:
            raise ValueError(f"reward 'regex': pattern {arguments['pattern']!r} does not compile: {error}") from None
    if name == "length" and not (isinstance(arguments["target"], int) and arguments["target"] >= 1):
        raise ValueError(f"reward 'length': target is {arguments['target']!r}, a whole number of tokens ≥ 1 is needed")
    if name == "number" and not arguments.get("tolerance", 0) >= 0:
        raise ValueError(f"reward 'number': tolerance is {arguments['tolerance']!r}, a number ≥ 0 is needed")
    if name == "soft_overlong":
        _check_soft_overlong(**arguments)


def compares_with_answer(name: str, arguments: Mapping[str, Any]) -> bool:
    """Whether a built-in reads the example's answer."""
    if name == "regex":
        return "answer" in re.compile(arguments["pattern"]).groupindex
    return name in {"exact", "number", "contains"}


def _check_soft_overlong(*, max_length: object, cache: object) -> None:
    if not (isinstance(max_length, int) and isinstance(cache, int) and 1 <= cache <= max_length):
        raise ValueError(
            f"reward 'soft_overlong': max_length is {max_length!r} and cache is {cache!r}, whole numbers of tokens "
            "with 1 ≤ cache ≤ max_length are needed"
        )


def reference_answer(completion: Completion) -> str:
    """The example's answer.

    Raises:
        UnscorableError: it has none.
    """
    if completion.example.answer is None:
        raise UnscorableError("the example has no answer")
    return completion.example.answer
