"""Kullback–Leibler terms from per-token log-probs (natural logarithms, tokens_T)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from algorithms.advantages import Reward, is_scored

KlEstimator = Literal["k1", "k2", "k3"]

TokenPenalty = Callable[[Sequence[float], Sequence[float]], Sequence[float]]
"""(logprobs_T, reference_logprobs_T) → penalties_T, which are subtracted from the advantages_T."""

EXP_LIMIT = 80.0  # e^80 is already nonsense for a ratio of probabilities, and still finite


@dataclass(frozen=True, slots=True)
class KlEstimate:
    """Three estimates of KL(policy ‖ reference) in nats per token, from tokens the policy sampled.

    With d = lp − ref: k1 = mean d (unbiased, may be negative), k2 = mean ½d² (biased, never negative),
    k3 = mean(e^−d − 1 + d) (unbiased, never negative). Source: Schulman, "Approximating KL divergence" (2020).
    """

    k1: float
    k2: float
    k3: float
    tokens: int


def kl_estimate(logprobs: Sequence[float], reference_logprobs: Sequence[float]) -> KlEstimate:
    """Estimate the divergence of the policy that sampled the tokens from a reference, averaged over tokens_T.

    Raises:
        ValueError: lists of different lengths, or empty ones.
    """
    same_length(logprobs=logprobs, reference_logprobs=reference_logprobs)
    if not logprobs:
        raise ValueError("logprobs is empty: a divergence needs at least one token")
    k1, k2, k3 = (
        math.fsum(kl_terms(logprobs, reference_logprobs, estimator)) / len(logprobs)
        for estimator in get_args(KlEstimator)
    )
    return KlEstimate(k1, k2, k3, tokens=len(logprobs))


def kl_terms(
    logprobs: Sequence[float], reference_logprobs: Sequence[float], estimator: KlEstimator = "k1"
) -> list[float]:
    """The estimate of every single token, terms_T; `KlEstimate` says what each is.

    Raises:
        ValueError: lists of different lengths, an unknown estimator.
    """
    same_length(logprobs=logprobs, reference_logprobs=reference_logprobs)
    differences = [lp - ref for lp, ref in zip(logprobs, reference_logprobs, strict=True)]
    match estimator:
        case "k1":
            return differences
        case "k2":
            return [0.5 * d * d for d in differences]
        case "k3":
            return [math.expm1(min(-d, EXP_LIMIT)) + d for d in differences]
    raise ValueError(f"KL estimator {estimator!r} is unknown: use one of {', '.join(get_args(KlEstimator))}")


@dataclass(frozen=True, slots=True)
class KlPenalty:
    """How far the policy may stray from a reference: β = `coef` times a KL term, in nats.

    `place` "advantage": A_t − β·kl_t on every token (a `TokenPenalty`: the object can be called as one). "reward":
    r − β·Σ_t kl_t before the baseline is taken, so that the baseline takes the group's mean divergence away again.

    Raises:
        ValueError: a coefficient that is negative or not finite, an unknown estimator or place.
    """

    coef: float
    estimator: KlEstimator = "k1"
    place: Literal["advantage", "reward"] = "advantage"

    def __post_init__(self) -> None:
        if not 0 <= self.coef < math.inf:
            raise ValueError(f"the KL coefficient is {self.coef}: it must be ≥ 0 and finite")
        if self.estimator not in get_args(KlEstimator):
            raise ValueError(f"KL estimator {self.estimator!r} is unknown: use one of k1, k2, k3")
        if self.place not in {"advantage", "reward"}:
            raise ValueError(f"the KL term's place {self.place!r} is unknown: use 'advantage' or 'reward'")

    def __call__(self, logprobs: Sequence[float], reference_logprobs: Sequence[float]) -> list[float]:
        """β·kl_t of every token."""
        return [self.coef * term for term in kl_terms(logprobs, reference_logprobs, self.estimator)]


def shape_rewards(rewards: Sequence[Reward], kl_sums: Sequence[float], coef: float) -> list[Reward]:
    """Rewards less `coef` times their completion's summed KL: r_i − β·Σ_t kl_it. One that is not scored stays so.

    Raises:
        ValueError: lists of different lengths.
    """
    if len(rewards) != len(kl_sums):
        raise ValueError(f"rewards has {len(rewards)} entries, kl_sums has {len(kl_sums)}: each reward needs one")
    return [
        reward - coef * kl_sum if is_scored(reward) else None for reward, kl_sum in zip(rewards, kl_sums, strict=True)
    ]


def kl_adjust_advantages(
    advantages: Sequence[float],
    sampled_logprobs: Sequence[float],
    reference_logprobs: Sequence[float],
    *,
    kl_coef: float,
) -> list[float]:
    """Per-token advantages less `kl_coef` times the k1 term: A_t − kl_coef·(sampled_t − reference_t).

    Raises:
        ValueError: the three lists differ in length (the lengths are named).
    """
    same_length(advantages=advantages, sampled_logprobs=sampled_logprobs, reference_logprobs=reference_logprobs)
    return [
        advantage - kl_coef * (sampled - reference)
        for advantage, sampled, reference in zip(advantages, sampled_logprobs, reference_logprobs, strict=True)
    ]


def same_length(**lists: Sequence[float]) -> None:
    """Refuse lists that should pair token by token and do not.

    Raises:
        ValueError: names every list with its length.
    """
    lengths = {name: len(values) for name, values in lists.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(
            "one entry per token is needed in each: " + ", ".join(f"{k} has {v}" for k, v in lengths.items())
        )
