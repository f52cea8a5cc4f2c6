"""Group-relative advantages: how much better each completion did than its siblings on the same prompt.

Rewards come as rewards_G, one per completion. A completion that could not be scored carries None or NaN: the group's
statistics pass over it and its advantage is None, so that one bad score never poisons the others. Whether a group is
constant is decided on the rewards, never on the differences: three times 0.1 centres to −1.4e-17, not to 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, TypeGuard, get_args

Reward = float | None
Advantages = list[float | None]

Estimate = Callable[[Sequence[Reward], Sequence[int]], Advantages]
"""(rewards_G, completion lengths_G in tokens) → advantages_G: what makes one group-relative algorithm or another."""

StdConvention = Literal["population", "sample"]

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


def group_mean_advantages(
    rewards: Sequence[Reward], *, normalize_std: bool = False, std: StdConvention = "population", eps: float = 0.0
) -> Advantages:
    """Reward minus the group's mean; with `normalize_std` divided by the group's standard deviation.

    `std` "population" takes the squares' mean over G; "sample" over G − 1, and adds `eps` to the deviation, as other
    trainers do with 1e-4 or so. A deviation below 1e-6 is not divided by. Source: GRPO, arXiv 2402.03300; without the
    division, arXiv 2503.20783.

    Raises:
        ValueError: fewer than two rewards, an unknown convention, a negative `eps`.
    """
    if std not in get_args(StdConvention):
        raise ValueError(f"std {std!r} is unknown: use 'population' or 'sample'")
    if not 0 <= eps < math.inf:
        raise ValueError(f"eps is {eps}: it must be ≥ 0 and finite")

    def centred(scored: list[float]) -> list[float]:
        differences = _centred(scored)
        sample = std == "sample"
        deviation = math.sqrt(math.fsum(value * value for value in differences) / (len(scored) - sample))
        if not normalize_std or deviation < MIN_STD:
            return differences
        return [value / (deviation + eps * sample) for value in differences]

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


def mean_normalized_advantage(rewards: Sequence[Reward]) -> Advantages:
    """(r − r̄)/r̄, all 0 where r̄ ≤ 0: a success counts the more, the rarer it is. Source: MaxRL, arXiv 2602.02710.

    Meant for rewards ≥ 0, such as 0 and 1.

    Raises:
        ValueError: fewer than two rewards.
    """

    def by_mean(scored: list[float]) -> list[float]:
        mean = math.fsum(scored) / len(scored)
        return [value / mean for value in _centred(scored)] if mean > 0 else [0.0] * len(scored)

    return _relative("mean_normalized_advantage", rewards, by_mean)


def baseline_advantages(rewards: Sequence[Reward], baseline: float) -> Advantages:
    """r − b with a baseline from outside the group. Source: REINFORCE, Williams 1992.

    Unlike the others it needs no siblings: a single completion, or a group with equal rewards, has a gradient.
    """
    return [reward - baseline if is_scored(reward) else None for reward in rewards]


def moving_baseline(means: Sequence[Reward], *, decay: float = 0.9) -> float:
    """The exponentially weighted mean of earlier cycles' mean rewards, the latest last; 0 before the first.

    Weights are decay^age over their own sum, so that the first cycles are not pulled towards 0. A function of what the
    cycles reported and nothing else: there is no state to save, and a resumed run continues with the same baseline.
    A cycle whose mean is None or NaN (nothing was scored) is passed over.

    Raises:
        ValueError: a decay outside [0, 1].
    """
    if not 0 <= decay <= 1:
        raise ValueError(f"decay is {decay}: it must be in [0, 1]")
    scored = [mean for mean in means if is_scored(mean)]
    weights = [decay**age for age in range(len(scored) - 1, -1, -1)]
    return math.fsum(w * mean for w, mean in zip(weights, scored, strict=True)) / math.fsum(weights) if scored else 0.0


def whiten(groups: Sequence[Advantages]) -> list[Advantages]:
    """All advantages of an optimizer step, shifted and scaled to mean 0 and population std 1; None stays None.

    A deviation below 1e-6 is not divided by. Source: REINFORCE++, arXiv 2501.03262.
    """
    values = [value for group in groups for value in group if value is not None]
    if not values:
        return [list(group) for group in groups]
    mean = math.fsum(values) / len(values)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))
    scale = deviation if deviation >= MIN_STD else 1.0
    return [[None if value is None else (value - mean) / scale for value in group] for group in groups]


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


def per_token(advantages: Sequence[float | None], lengths: Sequence[int]) -> Advantages:
    """Each advantage over its completion's length, by `length_normalize`; None stays None, whatever its length.

    Raises:
        ValueError: numbers of advantages and lengths that differ, or a length below 1 beside an advantage.
    """
    if len(advantages) != len(lengths):
        raise ValueError(f"advantages has {len(advantages)} entries, lengths has {len(lengths)}: each needs one")
    return [
        None if advantage is None else length_normalize(advantage, length)
        for advantage, length in zip(advantages, lengths, strict=True)
    ]


def _centred(values: list[float]) -> list[float]:
    mean = math.fsum(values) / len(values)
    return [value - mean for value in values]


def _relative(name: str, rewards: Sequence[Reward], estimate: Callable[[list[float]], list[float]]) -> Advantages:
    """Apply `estimate` to the scored rewards and put its answers back in their places."""
    if len(rewards) < 2:
        raise ValueError(f"{name} got {len(rewards)} reward(s): a group needs at least two")
    scored = [reward for reward in rewards if is_scored(reward)]
    values = iter([0.0] * len(scored) if constant(rewards) else estimate(scored))
    return [next(values) if is_scored(reward) else None for reward in rewards]
