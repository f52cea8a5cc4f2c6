"""A limit on money over prices that are all 0 guards nothing: it is refused, before anything else is looked at."""

from __future__ import annotations

from flows.config import BudgetConfig, ConfigError
from tasks.prices import Prices, prices_in


def require_prices(budget: BudgetConfig) -> None:
    """Refuse a limit on money that no price counts towards, as with a price file that nobody has filled in.

    Raises:
        ConfigError: names the limit, the file, and what to fill in.
        PriceError: the price file cannot be used.
    """
    limits = budget.limits(["max_cost", "max_cost_per_month"])
    if not limits:
        return
    prices = prices_in(budget.prices) or Prices()  # where there is a limit on money, there is a file
    _require(limits, "max_cost", not prices.empty, f"{budget.prices}", "operations, tokens or gpu.per_hour")
    of_work = any((*prices.operations.values(), *prices.tokens.values()))  # a month is without the price of time
    _require(limits, "max_cost_per_month", of_work, f"{budget.prices}", "operations or tokens")


def _require(limits: dict[str, float], name: str, counted: bool, file: str, which: str) -> None:
    if name in limits and not counted:
        raise ConfigError(
            f"budget.{name} = {limits[name]:g}: no price of {which} in {file} is above 0, so it would never be "
            "reached: write there what you pay, or leave the limit out"
        )
