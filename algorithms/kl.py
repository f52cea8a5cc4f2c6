"""Kullback–Leibler terms from per-token log-probs (natural logarithms, tokens_T)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

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
    differences = [lp - ref for lp, ref in zip(logprobs, reference_logprobs, strict=True)]
    count = len(differences)
    return KlEstimate(
        k1=math.fsum(differences) / count,
        k2=math.fsum(0.5 * d * d for d in differences) / count,
        k3=math.fsum(math.expm1(min(-d, EXP_LIMIT)) + d for d in differences) / count,
        tokens=count,
    )


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
