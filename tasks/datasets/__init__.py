"""The data sets that are shipped: small, made for demos and tests, split so that no held-out question leaks.

Each is a function to (training examples, held-out examples), the same on every machine and every Python.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tasks.datasets.addition import one_digit, two_digits
from tasks.datasets.addition_preferences import one_digit_preferences
from tasks.datasets.capitals import capitals
from tasks.examples import Example

Split = tuple[Sequence[Example], Sequence[Example]]

SHIPPED: dict[str, Callable[[], Split]] = {
    "addition-1digit": one_digit,
    "addition-1digit-preferences": one_digit_preferences,
    "addition-2digit": two_digits,
    "capitals": capitals,
}

__all__ = ["SHIPPED", "Split"]
