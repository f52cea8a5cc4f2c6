"""GSPO: one ratio for the whole sequence, since the reward is for the whole sequence.

Contract: GRPO-shaped data under the provider's own `gspo` loss, which makes the sequence's ratio of the log-probs.
Maths: A_i = (r_i − mean r) / std r over the group. s_i = exp(mean over tokens of lp − q), and every token of completion
    i carries s_i with its own gradient. Loss: −Σ min(s·A, clamp(s, lo, hi)·A).
Loss per provider: `gspo` on modal and local: clip_low_threshold and clip_high_threshold in loss_config. tinker: none.
Fails closed when: the provider has no `gspo` (tinker), before anything is allocated; a bound is negative, or a range
    is without 1. Never falls back to `importance_sampling`.
Deviates from the paper by: the server's bounds, 0.8 and 1.2, which a sequence's ratio hardly ever reaches; the paper's
    are PAPER_LOW and PAPER_HIGH. The mean over sequences (the paper's) is not a key of loss_config: it is the
    deployment's, or the caller's with aggregation "sequence_mean".
Paper: arXiv 2507.18071.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from algorithms.groups import LossContext, group_loss
from algorithms.grpo import advantages
from algorithms.loss_terms import LossTerms, clip_range

__all__ = ["LOSS_FUNCTION", "PAPER_HIGH", "PAPER_LOW", "advantages", "build_loss", "loss_terms"]

LOSS_FUNCTION = "gspo"
PAPER_LOW, PAPER_HIGH = 1 - 3e-4, 1 + 4e-4


def loss_terms(provider: str, low: float | None = None, high: float | None = None) -> LossTerms:
    """The bounds of the sequence's ratio as the provider takes them; None leaves one to the server (0.8, 1.2)."""
    return clip_range(provider, low, high)


def build_loss(sample: Mapping[str, Any], cycle: int, request: Mapping[str, Any], ctx: LossContext) -> dict[str, Any]:
    """The cookbook's contract: one sampled group in, one `forward_backward` payload out; see `group_loss`."""
    return group_loss(sample, request, ctx, advantages, LOSS_FUNCTION, terms=loss_terms(ctx.provider))
