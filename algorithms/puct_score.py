"""PUCT: which of N states to start from next, by what came out of each and how little it was tried.

Source: TTT-Discover, arXiv 2601.16175, section 3.2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from algorithms.advantages import Reward


def puct_scores(
    rewards_N: Sequence[Reward],
    best_child_N: Sequence[Reward],
    visits_N: Sequence[int],
    rollouts: int,
    *,
    group_size: int,
    c: float,
) -> list[float]:
    """Q + c·scale·P·√(1 + T/G) / (1 + n/G) of each state.

    Q is the best reward among what was sampled from the state, its own where nothing was. P is linear in the rank by
    reward: the best of N weighs N, the next N − 1, …, the last 1, over their sum; the older of equals ranks first, a
    state without a reward last. scale is the spread of the rewards, or 1 where there is none: then visits alone tell
    the states apart.

    Args:
        rewards_N: each state's own reward, oldest state first; None for the bare problem, which has none: its Q is the
            lowest reward there is (0 if there is none) until something came out of it.
        best_child_N: the best reward sampled from each state; None where nothing usable was.
        visits_N: n, completions sampled from each state or a descendant.
        rollouts: T, completions sampled in all.
        group_size: G, completions per group.
        c: weight of the bonus.
    """
    known = [reward for reward in rewards_N if reward is not None]
    lowest = min(known, default=0.0)
    scale = (max(known) - lowest if known else 0.0) or 1.0
    count = len(rewards_N)
    by_rank = sorted(range(count), key=lambda i: (rewards_N[i] is None, -(rewards_N[i] or 0.0), i))
    prior = [0.0] * count
    for rank, place in enumerate(by_rank):
        prior[place] = (count - rank) / (count * (count + 1) / 2)
    breadth = c * scale * math.sqrt(1 + rollouts / group_size)
    return [
        _first_known(child, own, lowest) + breadth * P / (1 + n / group_size)
        for child, own, P, n in zip(best_child_N, rewards_N, prior, visits_N, strict=True)
    ]


def _first_known(*values: Reward) -> float:
    return next(value for value in values if value is not None)
