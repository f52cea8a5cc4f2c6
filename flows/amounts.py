"""Amounts of what a budget limits, as people read them."""

from __future__ import annotations

from decimal import Decimal
from math import ceil

from tasks.money import money


def amount_told(kind: str, amount: float, currency: str = "") -> str:
    """Operations and tokens whole, money to the cent in its currency, minutes to the hundredth; no exponent.

    Args:
        kind: "operations", "tokens", "cost" or "minutes", as `flows.config.budget.KINDS` has it of a limit.
        amount: how much. Of operations and tokens a fraction counts as one more.
        currency: of "cost": USD, €.
    """
    if kind == "cost":
        return f"{money(amount)} {currency}".rstrip()
    if kind == "minutes":
        return _plain(round(amount, 2) or float(f"{amount:.2g}"))
    return f"{whole(amount):,}"


def whole(amount: float) -> int:
    """Up to the next whole number; what is one but for the noise of a sum of floats stays as it is."""
    near = round(amount)
    return near if abs(amount - near) < 1e-6 else ceil(amount)


def _plain(number: float) -> str:
    return format(Decimal(f"{number:.10g}"), ",f")
