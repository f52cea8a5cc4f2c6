"""Amounts of money as people write them."""

from __future__ import annotations

from math import floor, log10

CENT = 0.01
DIGITS = 2
"""Of what is less than a cent: tokens have such prices."""


def money(amount: float) -> str:
    """To the cent; of less than one cent the first two digits that tell."""
    return f"{amount:,.{_places(amount)}f}"


def as_money(amount: float) -> float:
    """The amount, rounded to what `money` shows."""
    return round(amount, _places(amount))


def _places(amount: float) -> int:
    return 2 if amount == 0 or abs(amount) >= CENT else DIGITS - 1 - floor(log10(abs(amount)))
