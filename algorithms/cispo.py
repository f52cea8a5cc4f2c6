"""CISPO: the clipped ratio is a coefficient on the gradient, and no token is ever left out.

Contract: GRPO-shaped data under the provider's own `cispo` loss; only the loss differs.
Maths: A_i = (r_i − mean r) / std r over the group. Loss: −Σ sg(clamp(ratio, lo, hi))·A·lp, with 0 … 5 on modal and
    0 … 4 elsewhere: a ratio of 5.5 counts as 5, and its token still learns. sg: no gradient flows through it.
Loss per provider: `cispo`. modal and local: clip_low_threshold and clip_high_threshold in loss_config. tinker: Whitney
    passes it no keys for this loss, so its loss_config stays empty and its own bounds, 0 and 4, hold.
Fails closed when: the provider has no `cispo`; any bound is asked of tinker; a bound is negative, or a range is without
    1. Never falls back to `importance_sampling`.
Deviates from the paper by: the providers' bounds, where the paper tunes the upper one only. Some back ends of modal
    refuse the two keys: the flow's `send_bounds = false` leaves them out.
Paper: arXiv 2506.13585 (MiniMax-M1).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from algorithms.groups import LossContext, group_loss
from algorithms.grpo import advantages
from algorithms.loss_terms import NO_TERMS, LossTerms, clip_range

__all__ = ["DEFAULT_HIGH", "DEFAULT_LOW", "LOSS_FUNCTION", "advantages", "build_loss", "loss_terms"]

LOSS_FUNCTION = "cispo"
DEFAULT_LOW = 0.0
DEFAULT_HIGH = {"modal": 5.0, "local": 4.0, "tinker": 4.0}
"""What each provider's own upper bound is."""


def loss_terms(provider: str, low: float | None = None, high: float | None = None) -> LossTerms:
    """The bounds of the ratio; None is the provider's own, spelt out where its keys are known.

    Raises:
        ValueError: as `clip_range`, or any bound for tinker.
    """
    if provider != "tinker":
        return clip_range(
            provider, DEFAULT_LOW if low is None else low, DEFAULT_HIGH.get(provider) if high is None else high
        )
    if (low, high) != (None, None):
        raise ValueError(
            f"clip_low is {low}, clip_high is {high}: Whitney passes no bounds to tinker's cispo; leave both out "
            f"(its own are {DEFAULT_LOW:g} and {DEFAULT_HIGH['tinker']:g}), or use another provider"
        )
    return NO_TERMS


def build_loss(sample: Mapping[str, Any], cycle: int, request: Mapping[str, Any], ctx: LossContext) -> dict[str, Any]:
    """The cookbook's contract: one sampled group in, one `forward_backward` payload out; see `group_loss`."""
    return group_loss(sample, request, ctx, advantages, LOSS_FUNCTION, terms=loss_terms(ctx.provider))
