"""Whether going on is worth what it costs: the gain that is forecast for as much compute again, per unit of cost.

It is the upper end of the forecast's interval that is held against the rule. What has been flat for a while may have
learnt all it will, or not have begun to; the middle between the two would end runs that had only begun. What even the
most hopeful of the likely curves does not earn is safely left. As much again is expected to cost as much again.
"""

from __future__ import annotations

from collections.abc import Sequence

from flows.config import StopConfig
from flows.durable.outcome import Row
from tasks.prices import Prices
from tasks.reward_range import Range
from tasks.run_forecast import run_forecast

THOUSAND = 1000


def gain_reason(
    rules: StopConfig, rows: Sequence[Row], reward_range: Range | None, prices: Prices | None
) -> str | None:
    """Which rule about the forecast gain the cycles so far have met, as a sentence; None to go on, or without one."""
    operations, money = _spent(rows, "operations/"), _money(rows, prices)
    costs = (
        ("min_gain_per_1000_operations", rules.min_gain_per_1000_operations, operations / THOUSAND, "1,000 operations"),
        ("min_gain_per_cost", rules.min_gain_per_cost, money, prices.currency if prices else ""),
    )
    asked = [(name, least, cost, unit) for name, least, cost, unit in costs if least is not None and cost > 0]
    if not asked or (forecast := run_forecast(rows, reward_range)) is None:
        return None
    gain = forecast.gain.high
    for name, least, cost, unit in asked:
        if gain / cost < least:
            return (
                f"as much compute again would gain {gain:.3g} mean reward at most, {gain / cost:.3g} per {unit}, "
                f"below stop.{name} = {least:g}"
            )
    return None


def _spent(rows: Sequence[Row], prefix: str) -> float:
    return sum(value for row in rows for key, value in row.items() if key.startswith(prefix))


def _money(rows: Sequence[Row], prices: Prices | None) -> float:
    """What the cycles have cost, measurements and export apart: these come once, however many cycles there are."""
    if prices is None:
        return 0.0
    operations, tokens = (_by_kind(rows, prefix) for prefix in ("operations/", "tokens/"))
    return prices.cost(operations, tokens, _spent(rows, "seconds/cycle"))


def _by_kind(rows: Sequence[Row], prefix: str) -> dict[str, float]:
    keys = {key for row in rows for key in row if key.startswith(prefix)}
    return {key.removeprefix(prefix): sum(row.get(key, 0) for row in rows) for key in sorted(keys)}
