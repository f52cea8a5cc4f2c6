"""The `[stop]` table: when a run ends before its last cycle."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from algorithms.forecast import FEWEST_POINTS
from flows.config.sections import PositiveInt, Section
from tasks.prices import OPERATIONS, TOKENS, Prices, read_prices
from tasks.reward_range import RANGES, reward_range
from tasks.rewards import RewardTerm

Amount = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class StopConfig(Section):
    """When to stop before the last cycle. Looked at where a block ends, because that is where weights are saved."""

    zero_signal_streak: PositiveInt | None = Field(
        None, description="Stop after so many cycles in a row in which no group had a gradient."
    )
    max_kl: Annotated[float, Field(gt=0)] | None = Field(
        None,
        description="Stop when `kl_reference`, else `kl_sampler_trainer_k3`, exceeds it, in nats per token.",
    )
    max_mean_completion_tokens: Annotated[float, Field(gt=0)] | None = Field(
        None, description="Stop when completions have become longer than this on average: a length blow-up."
    )
    min_mean_completion_tokens: Annotated[float, Field(gt=0)] | None = Field(
        None, description="Stop when completions have become shorter than this on average: a collapse."
    )
    min_gain_per_1000_operations: Amount | None = Field(
        None,
        description="Stop when as much compute again as the run has taken would gain less mean reward than this per "
        "1,000 billed operations, even by the upper end of the forecast. From cycle 8 on; not for a reward function "
        "of yours, whose range is not known.",
    )
    min_gain_per_cost: Amount | None = Field(
        None, description="The same per unit of money, by the price file `budget.prices`: per dollar, say."
    )

    def check_gain(self, terms: Sequence[RewardTerm], cycles: int, prices: Path | None) -> None:
        """Refuse a rule about the forecast gain where there is no forecast, or nothing that it costs.

        Args:
            terms: what completions are rewarded for.
            cycles: of the whole run.
            prices: the price file, if one is named.

        Raises:
            ValueError: names the rule, and what it lacks. PriceError, one of these: the file cannot be used.
        """
        names = ("min_gain_per_1000_operations", "min_gain_per_cost")
        given = [f"stop.{name} = {value:g}" for name in names if (value := getattr(self, name)) is not None]
        if not given:
            return
        if reward_range(terms) is None:
            own = [term.function for term in terms if term.function not in RANGES]
            why = f"that of {', '.join(own)} is not" if own else "this run has none"
            raise ValueError(f"{given[0]} needs a reward whose range is known, and {why}; leave it out")
        if cycles <= FEWEST_POINTS:
            raise ValueError(f"{given[0]}: a forecast needs {FEWEST_POINTS} cycles, cycles = {cycles}; leave it out")
        if self.min_gain_per_cost is not None and prices is None:
            raise ValueError(f"{given[-1]} needs budget.prices: a price file; `whitney init prices` writes one")
        if (read := self.prices(prices)) is not None and not read.cost(*_ONE_OF_EACH):
            raise ValueError(f"{given[-1]}: by budget.prices = {str(prices)!r} nothing costs anything; fill it in")

    def prices(self, path: Path | None) -> Prices | None:
        """What the rule about money goes by; None without that rule.

        Raises:
            PriceError: the file cannot be used.
        """
        return read_prices(path) if path is not None and self.min_gain_per_cost is not None else None


_ONE_OF_EACH: Any = dict.fromkeys(OPERATIONS, 1.0), dict.fromkeys(TOKENS, 1e6), 3600.0
