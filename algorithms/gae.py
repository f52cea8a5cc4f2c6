"""Generalised advantage estimation: what each token was worth, by a critic's values. Source: arXiv 1506.02438."""

from __future__ import annotations

from collections.abc import Sequence

from algorithms.kl import same_length


def gae(
    rewards_T: Sequence[float],
    values_T: Sequence[float],
    *,
    gamma: float = 1.0,
    lam: float = 0.95,
    bootstrap: float = 0.0,
) -> tuple[list[float], list[float]]:
    """The advantages_T and returns_T of one completion.

    δ_t = r_t + γ·V_{t+1} − V_t, A_t = δ_t + γλ·A_{t+1}, R_t = A_t + V_t.

    Args:
        rewards_T: what token t earned (`terminal_rewards` where only the whole completion is scored).
        values_T: the critic's V of the state *before* token t is chosen.
        gamma: discount γ per token, in [0, 1].
        lam: λ in [0, 1]: 0 trusts the critic alone, 1 the rewards alone.
        bootstrap: V of the state behind the last token: 0 for a completion that has ended, the critic's value for one
            that was cut off.

    Raises:
        ValueError: lists that differ in length or are empty, or γ or λ outside [0, 1].
    """
    same_length(rewards=rewards_T, values=values_T)
    if not rewards_T:
        raise ValueError("rewards is empty: a completion has at least one token")
    for name, value in (("gamma", gamma), ("lam", lam)):
        if not 0.0 <= value <= 1.0:
            raise ValueError(f"{name} is {value}: it must be in [0, 1]")
    advantages: list[float] = []
    following, next_value = 0.0, bootstrap
    for reward, value in zip(reversed(rewards_T), reversed(values_T), strict=True):
        following = reward + gamma * next_value - value + gamma * lam * following
        advantages.append(following)
        next_value = value
    advantages.reverse()
    return advantages, [a + v for a, v in zip(advantages, values_T, strict=True)]


def terminal_rewards(reward: float, length: int) -> list[float]:
    """A completion's one reward, on the last of its `length` tokens; 0 before.

    Raises:
        ValueError: a length below 1.
    """
    if length <= 0:
        raise ValueError(f"length is {length}: a completion has at least one token")
    return [0.0] * (length - 1) + [float(reward)]
