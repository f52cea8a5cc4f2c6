"""Group-relative advantages: how much better each completion did than its siblings on the same prompt.

Rewards come as rewards_G, one per completion. A completion that could not be scored carries None or NaN: the group's
statistics pass over it and its advantage is None, so that one bad score never poisons the others. Whether a group is
constant is decided on the rewards, never on the differences: three times 0.1 centres to −1.4e-17, not to 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeGuard

Reward = float | None
Advantages = list[float | None]

EQUAL_REWARDS = 1e-9
"""Rewards whose spread is at most this (relative to their size, or absolute below 1) count as equal."""

MIN_STD = 1e-6
"""A smaller standard deviation is not divided by: it would turn rounding into signal."""


def is_scored(reward: Reward) -> TypeGuard[float]:
    """Whether a reward is a finite number."""
    return reward is not None and math.isfinite(reward)


def constant(rewards: Sequence[Reward]) -> bool:
    """Whether the scored rewards of a group are all equal, so that no completion is better than another."""
    scored = [reward for reward in rewards if is_scored(reward)]
    if len(scored) < 2:
        return True
    return max(scored) - min(scored) <= EQUAL_REWARDS * max(1.0, *map(abs, scored))


def group_mean_advantages(rewards: Sequence[Reward], *, normalize_std: bool = False) -> Advantages:
    """Reward minus the group's mean; with `normalize_std` divided by the group's population standard deviation.

    A deviation below 1e-6 is not divided by. Source: GRPO, arXiv 2402.03300; without the division, arXiv 2503.20783.

    Raises:
        ValueError: fewer than two rewards.
    """

    def centred(scored: list[float]) -> list[float]:
        mean = math.fsum(scored) / len(scored)
        differences = [reward - mean for reward in scored]
        std = math.sqrt(math.fsum(value * value for value in differences) / len(scored))
        return [value / std for value in differences] if normalize_std and std >= MIN_STD else differences

    return _relative("group_mean_advantages", rewards, centred)


def leave_one_out_baseline(rewards: Sequence[Reward]) -> Advantages:
    """RLOO advantages: each reward minus the mean of the others. Source: arXiv 2402.14740.

    Raises:
        ValueError: fewer than two rewards.
    """

    def against_others(scored: list[float]) -> list[float]:
        total = math.fsum(scored)
        return [reward - (total - reward) / (len(scored) - 1) for reward in scored]

    return _relative("leave_one_out_baseline", rewards, against_others)


def max_relative_advantage(rewards: Sequence[Reward]) -> Advantages:
    """Each reward minus the best of the others: positive only for a completion that beat its whole group.

    The Whitney cookbook's reading of MaxRL, not a published formula.

    Raises:
        ValueError: fewer than two rewards.
    """

    def against_best(scored: list[float]) -> list[float]:
        return [reward - max(scored[:i] + scored[i + 1 :]) for i, reward in enumerate(scored)]

    return _relative("max_relative_advantage", rewards, against_best)


def all_zero(advantages: Sequence[float | None], *, tolerance: float = 1e-9) -> bool:
    """Whether a group has no gradient in it: every advantage is None or within `tolerance` of 0."""
    return all(value is None or abs(value) <= tolerance for value in advantages)


def length_normalize(advantage: float, completion_length: int) -> float:
    """An advantage divided by its completion's own length in tokens.

    Raises:
        ValueError: a length below 1.
    """
    if completion_length <= 0:
        raise ValueError(f"completion_length is {completion_length}: a completion has at least one token")
    return advantage / completion_length


def _relative(name: str, rewards: Sequence[Reward], estimate: Callable[[list[float]], list[float]]) -> Advantages:
    """Apply `estimate` to the scored rewards and put its answers back in their places."""
    if len(rewards) < 2:
        raise ValueError(f"{name} got {len(rewards)} reward(s): a group needs at least two")
    scored = [reward for reward in rewards if is_scored(reward)]
    values = iter([0.0] * len(scored) if constant(rewards) else estimate(scored))
    return [next(values) if is_scored(reward) else None for reward in rewards]
