"""How soon a run may end: a rule of `[stop]` is looked at where a block ends."""

from __future__ import annotations

from math import ceil

from algorithms.forecast import FEWEST_POINTS
from flows.config import FlowConfig


def fewest_cycles(config: FlowConfig) -> int:
    """Cycles of the shortest run that the rules leave; all of them where there is no rule."""
    rules = config.stop
    bounds = (rules.max_kl, rules.max_mean_completion_tokens, rules.min_mean_completion_tokens)
    gains = (rules.min_gain_per_1000_operations, rules.min_gain_per_cost)
    soonest = [config.cycles]
    if rules.zero_signal_streak is not None:
        soonest.append(rules.zero_signal_streak)
    if any(bound is not None for bound in bounds):
        soonest.append(1)
    if any(gain is not None for gain in gains):
        soonest.append(FEWEST_POINTS)
    return min(config.cycles, ceil(min(soonest) / config.save_every) * config.save_every)
