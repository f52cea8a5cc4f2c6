"""What a cycle draws beyond once for each group, and how much of all that is trained: of DAPO a matter of chance."""

from __future__ import annotations

from dataclasses import dataclass

from algorithms.resampling_odds import Expected, expected_cycle
from flows.config import DapoConfig, FlowConfig
from flows.counts.prompts import Case


@dataclass(frozen=True, slots=True)
class Draws:
    """Of the mean cycle.

    Args:
        operations: further `sample` operations.
        completions: that these draw.
        steps: the share of cycles that take their steps.
        trained: completions that are trained on, as a share of those that are drawn first. At most it is all of what is
            drawn again, too, which is counted there.
    """

    operations: float = 0.0
    completions: float = 0.0
    steps: float = 1.0
    trained: float = 1.0


ONCE = Draws()
"""Every group is drawn once, and trained."""


def draws_of(config: FlowConfig, case: Case) -> Draws:
    """At least nothing is drawn again, and no group has a signal; at most everything that is drawn is kept."""
    if not isinstance(config, DapoConfig):
        return ONCE
    first = config.groups_per_cycle * config.group_size
    if case == "least":
        return Draws(steps=0.0, trained=0.0)
    if case == "typical":
        mean = expected(config)
        return Draws(mean.draws, mean.completions, mean.steps, mean.trained / first)
    again = most_draws(config)
    return Draws(again, again * largest_group(config))


def most_draws(config: DapoConfig) -> int:
    """Further `sample` operations of a cycle, at most."""
    return min(config.resample.max_operations, config.resample.max_rounds * config.groups_per_cycle)


def largest_group(config: DapoConfig) -> int:
    """Completions of a prompt that are judged together, at most: also of one draw."""
    return max(config.group_size, config.resample_policy().target_group_size)


def expected(config: DapoConfig) -> Expected:
    """The mean cycle where problems are of all difficulties alike."""
    policy = config.resample_policy()
    return expected_cycle(policy, config.groups_per_cycle, config.group_size, config.resample.on_exhausted)
