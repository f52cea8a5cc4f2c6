"""What dynamic sampling comes to on average, before a reward is known: draws, steps, completions that are trained on.

Rewards are taken as 0 or 1, and prompts as of all difficulties alike; completions that are dropped for another reason
than equal rewards are not foreseen. A cycle is then so many independent places, each drawn for until it is complete.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from algorithms.resampling import ResamplePolicy

OnExhausted = Literal["skip", "train_partial", "fail"]


@dataclass(frozen=True, slots=True)
class Expected:
    """The mean cycle.

    Args:
        draws: further `sample` operations.
        completions: that these draw.
        steps: how likely there is something to train on, 0 to 1.
        trained: completions that are trained on.
    """

    draws: float
    completions: float
    steps: float
    trained: float


def flat_share(completions: int) -> float:
    """The share of groups whose rewards, 0 or 1 each, are all equal: 2 / (n + 1).

    How likely a prompt is solved is not known beforehand. Taken as evenly spread over 0…1, n completions are all right
    or all wrong with a chance of ∫ p^n + (1 − p)^n dp.
    """
    return 2 / (completions + 1)


def expected_cycle(policy: ResamplePolicy, groups: int, group_size: int, on_exhausted: OnExhausted) -> Expected:
    """The mean cycle of so many groups; of "fail", that of a run which does not fail.

    Exact where the operations are not limited, and under a limit where rounds are alike ("next_prompt", no larger
    target): else what a draw yields is taken as the mean of all rounds.
    """
    drawn, held, flat = map(np.array, zip(*_rounds(policy, group_size), strict=True))
    pending = np.concatenate([[1.0], np.cumprod(flat)])  # before each round; the last: never complete
    done = pending[:-1] - pending[1:]
    freely, capped, all_done = _operations(done, pending[-1], groups, policy.max_operations)
    part = capped / freely if freely else 0.0
    completions = part * groups * float(pending[1:-1] @ drawn[1:])
    yields = done * np.array([1.0, *[part] * (len(done) - 1)])  # of a place, by round
    size = float(yields @ held) / complete if (complete := float(yields.sum())) else 0.0
    if on_exhausted == "train_partial":
        return Expected(
            capped, completions, 1 - _none_done(flat, groups, policy.max_operations), groups * complete * size
        )
    steps = 1.0 if on_exhausted == "fail" else all_done
    return Expected(capped, completions, steps, steps * groups * size)


def _rounds(policy: ResamplePolicy, size: int) -> list[tuple[int, int, float]]:
    """By round: completions drawn for a place, how many are then judged, how likely it stays without a signal."""
    target, rounds, held, before = policy.target_group_size, [], 0, 1.0
    for _ in range(policy.max_rounds + 1):
        drawn = size if not held else target - held if held < target else target
        held += drawn
        now = flat_share(held) if held >= target else 1.0
        rounds.append((drawn, held, now / before))
        before = now
        if held >= target and policy.zero_signal == "next_prompt":
            held, before = 0, 1.0
    return rounds


def _operations(done: NDArray[np.float64], never: float, groups: int, limit: int) -> tuple[float, float, float]:
    """Further operations without the limit, and with it; how likely every place is complete by then."""
    counts = np.arange(groups * (len(done) - 1) + 1)
    ends = np.array([*done[:-1], done[-1] + never])
    used, used_well = (_sum_of(groups, one, len(counts)) for one in (ends, done))
    return float(used @ counts), float(used @ np.minimum(counts, limit)), float(used_well[: limit + 1].sum())


def _sum_of(groups: int, one: NDArray[np.float64], length: int) -> NDArray[np.float64]:
    """How likely the numbers of so many places add up to 0, 1, …"""
    return np.maximum(np.fft.irfft(np.fft.rfft(one, length) ** groups, length), 0.0)


def _none_done(flat: NDArray[np.float64], groups: int, limit: int) -> float:
    """How likely no place is complete: each round draws for all of them, until the operations are used up."""
    draws = [groups] + [min(groups, max(0, limit - groups * number)) for number in range(len(flat) - 1)]
    return prod(float(chance) ** count for chance, count in zip(flat, draws, strict=True))
