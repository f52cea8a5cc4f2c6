"""The loss of one preference pair, and its derivative, in a form that no log-prob makes overflow."""

from __future__ import annotations

import math
from typing import NamedTuple


class DpoLoss(NamedTuple):
    """`loss` in nats, `margin` β·h, and `gradient`: dloss/dlp of each chosen token; a rejected one has its opposite."""

    loss: float
    margin: float
    gradient: float


def dpo_loss(
    policy_chosen: float,
    ref_chosen: float,
    policy_rejected: float,
    ref_rejected: float,
    *,
    beta: float,
    label_smoothing: float = 0.0,
) -> DpoLoss:
    """−(1−ε)·log σ(β·h) − ε·log σ(−β·h) with h = (π_c − ref_c) − (π_r − ref_r), and ε = `label_smoothing`.

    Args:
        policy_chosen: log-prob of the whole chosen answer under the policy: the sum over its tokens. So the others.
        beta: how dearly leaving the reference is paid for; 0.1 is usual.
        label_smoothing: the probability that a label is wrong.

    Raises:
        ValueError: β not a positive number, or `label_smoothing` outside [0, 0.5).
    """
    if not 0 < beta < math.inf:
        raise ValueError(f"beta is {beta}: it must be a positive number, such as 0.1")
    if not 0 <= label_smoothing < 0.5:
        raise ValueError(f"label_smoothing is {label_smoothing}: it must be in [0, 0.5)")
    margin = beta * ((policy_chosen - ref_chosen) - (policy_rejected - ref_rejected))
    loss = (1 - label_smoothing) * _softplus(-margin) + label_smoothing * _softplus(margin)
    slope = (1 - label_smoothing) * _sigmoid(-margin) - label_smoothing * _sigmoid(margin)
    return DpoLoss(loss, margin, -beta * slope)


def _sigmoid(x: float) -> float:
    # e^x of the negative side only: of the positive one it overflows beyond 709.
    return 1.0 / (1.0 + math.exp(-x)) if x >= 0 else math.exp(x) / (1.0 + math.exp(x))


def _softplus(x: float) -> float:
    """log(1 + e^x) = −log σ(−x)."""
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))
