"""Entropic advantages: a group's best completions count exponentially, so that the maximum is pushed, not the mean.

Maximising (1/β)·log E[exp(β·r)] goes from the mean reward (β → 0) to the best one (β → ∞). Source: TTT-Discover,
arXiv 2601.16175, section 3.1 and appendix A.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from algorithms.advantages import Advantages, Reward, constant, is_scored

KL_BUDGET = math.log(2)
"""How far (in nats) the tilted distribution over the group may be from the uniform one when β is adaptive."""

BETA_CAP = 1e6
"""β of a group that no finite β brings to the budget: half of it or more is tied at the top."""

OFFSET = 1e-12  # keeps A finite for a completion whose siblings all have e = 0 in floating point
_ROUNDING = 1e-12  # the divergence of a group that only tends to ln 2 ends within this of it


def entropic_advantages(rewards_G: Sequence[Reward], *, beta: float | None = None) -> Advantages:
    """A_i = e_i / Z_i − 1 with e_i = exp(β·(r_i − max r)) and Z_i the mean of the *others'* e.

    Args:
        rewards_G: one reward per completion; None and NaN are passed over and stay None.
        beta: in 1/reward; None takes `solve_beta` of the group. A group of two with unequal rewards has only the cap
            for an adaptive β, where its better completion gets 1/1e-12: give such a group a fixed β.

    Raises:
        ValueError: fewer than two rewards, or a β that is not a positive number.
    """
    if len(rewards_G) < 2:
        raise ValueError(f"entropic_advantages got {len(rewards_G)} reward(s): a group needs at least two")
    if beta is not None and not 0 < beta < math.inf:
        raise ValueError(f"beta is {beta}: it must be a positive number, or None to let the group choose")
    if constant(rewards_G):
        return [0.0 if is_scored(reward) else None for reward in rewards_G]
    scored = [reward for reward in rewards_G if is_scored(reward)]
    e = _tilt(scored, solve_beta(scored) if beta is None else beta)
    others = [math.fsum(e[:i] + e[i + 1 :]) / (len(e) - 1) for i in range(len(e))]
    values = iter([e_i / (Z_i + OFFSET) - 1.0 for e_i, Z_i in zip(e, others, strict=True)])
    return [next(values) if is_scored(reward) else None for reward in rewards_G]


def solve_beta(rewards: Sequence[Reward]) -> float:
    """The smallest β at which KL(softmax(β·r) ‖ uniform) reaches ln 2, by bisection.

    The divergence grows with β towards ln(G / number tied at the top): [1, 1, 1, 0] never gets to ln 2, and a group
    with equal rewards never leaves 0. Those get `BETA_CAP`.
    """
    scored = [reward for reward in rewards if is_scored(reward)]
    if constant(scored) or _divergence(scored, BETA_CAP) <= KL_BUDGET + _ROUNDING:
        return BETA_CAP
    low, high = 0.0, 1.0
    while _divergence(scored, high) < KL_BUDGET:
        low, high = high, 2.0 * high
    while low < (middle := 0.5 * (low + high)) < high:
        low, high = (low, middle) if _divergence(scored, middle) >= KL_BUDGET else (middle, high)
    return min(high, BETA_CAP)


def _tilt(rewards: list[float], beta: float) -> list[float]:
    best = max(rewards)
    return [math.exp(beta * (reward - best)) for reward in rewards]


def _divergence(rewards: list[float], beta: float) -> float:
    e = _tilt(rewards, beta)
    total = math.fsum(e)
    return math.fsum(x / total * math.log(x / total * len(e)) for x in e if x > 0.0)
