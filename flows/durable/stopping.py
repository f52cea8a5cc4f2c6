"""Stop rules: a pure function of the metrics so far, so that a Retry comes to the same verdict without any memory."""

from __future__ import annotations

from collections.abc import Sequence

from flows.config import StopConfig
from flows.durable.gain import gain_reason
from flows.durable.outcome import Row
from tasks.prices import Prices
from tasks.reward_range import Range


def stop_reason(
    rules: StopConfig, rows: Sequence[Row], *, reward_range: Range | None = None, prices: Prices | None = None
) -> str | None:
    """Which rule the cycles so far have met, as a sentence; None to go on.

    Args:
        rules: the configuration's.
        rows: the metrics of the cycles so far.
        reward_range: what a forecast is made with; None makes none.
        prices: for the rule about money.
    """
    if not rows:
        return None
    streak = _zero_signal_streak(rows)
    if rules.zero_signal_streak is not None and streak >= rules.zero_signal_streak:
        return f"no group had a gradient in {streak} cycles in a row (stop.zero_signal_streak)"
    last = rows[-1]
    divergence = "kl_reference" if "kl_reference" in last else "kl_sampler_trainer_k3"
    bounds = (
        (divergence, "max_kl", rules.max_kl, 1),
        ("completion_tokens_mean", "max_mean_completion_tokens", rules.max_mean_completion_tokens, 1),
        ("completion_tokens_mean", "min_mean_completion_tokens", rules.min_mean_completion_tokens, -1),
    )
    for metric, rule, bound, sign in bounds:
        value = last.get(metric)
        if bound is not None and value is not None and sign * value > sign * bound:
            return f"{metric} is {value:.4g}, {'above' if sign > 0 else 'below'} stop.{rule} = {bound}"
    return gain_reason(rules, rows, reward_range, prices)


def _zero_signal_streak(rows: Sequence[Row]) -> int:
    """How many of the last cycles, in a row, sent no datum."""
    streak = 0
    for row in reversed(rows):
        if row.get("datums", 0):
            break
        streak += 1
    return streak
