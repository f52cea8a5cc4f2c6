"""What a run has cost in money, beside what was planned: by the price file that its budget names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flows.config import BudgetConfig
from flows.durable.telling import warn
from tasks.money import as_money
from tasks.prices import PriceError, Prices, prices_in


def prices_of(config: BudgetConfig) -> Prices | None:
    """The price file, at the end of a run; None without one.

    It was read at the beginning. One that is gone meanwhile is told: everything is trained, and paid for.
    """
    try:
        return prices_in(config.prices)
    except PriceError as error:
        warn(f"cannot tell what was paid: {error}")
        return None


def cost_beside_plan(
    prices: Prices | None,
    billed: Mapping[str, Mapping[str, float]] | None,
    seconds: float,
    planned: Mapping[str, float] | None,
) -> dict[str, Any] | None:
    """For the summary; None where there are no prices, or nobody knows what was billed.

    Args:
        prices: the reader's own.
        billed: "operations" and "tokens" of all attempts, by kind.
        seconds: at work, of all attempts: what GPUs are paid for.
        planned: "least", "typical", "most", of the whole run; None where that is not on record.
    """
    if prices is None or billed is None:
        return None
    return {
        "currency": prices.currency,
        "billed": as_money(prices.cost(billed["operations"], billed["tokens"], seconds)),
        "planned": planned and {name: as_money(value) for name, value in planned.items()},
    }
