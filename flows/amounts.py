"""Amounts of what a budget limits, as people read them."""

from __future__ import annotations

from decimal import Decimal
from math import ceil, floor, log10

from tasks.money import money

NOISE = 1e-6
"""Of a sum of floats, in units of its last digit that counts."""


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


def enough_told(kind: str, amount: float, currency: str = "") -> str:
    """As `amount_told`, but never less than the amount: whoever sets a limit to it has enough."""
    enough = rounded_up(kind, amount)
    if kind != "cost" or enough == round(enough, 2):
        return amount_told(kind, enough, currency)
    return f"{_plain(enough)} {currency}".rstrip()


def rounded_up(kind: str, amount: float) -> float:
    """The amount or a little more. Of operations and tokens whole; of money in cents, of less than 1 in three digits
    that tell: a cent may be more than the whole run costs. Minutes stay as they are.
    """
    if kind == "cost" and amount > 0:
        places = 2 if amount >= 1 else 2 - floor(log10(amount))
        return round(ceil(amount * 10.0**places - NOISE) / 10.0**places, places)
    return whole(amount) if kind in ("operations", "tokens") else amount


def whole(amount: float) -> int:
    """Up to the next whole number; what is one but for the noise of a sum of floats stays as it is."""
    near = round(amount)
    return near if abs(amount - near) < NOISE else ceil(amount)


def _plain(number: float) -> str:
    return format(Decimal(f"{number:.10g}"), ",f")
