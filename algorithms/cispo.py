"""CISPO: the clipped ratio is a coefficient on the gradient, and no token is ever left out.

Contract: GRPO-shaped data under the provider's own `cispo` loss; only the loss differs.
Maths: A_i as in `grpo`. Loss: −Σ sg(clamp(ratio, 0, 4))·A·lp: a ratio of 5.5 counts as 4, and its token still learns.
Loss per provider: `cispo`. modal and local: clip_low_threshold and clip_high_threshold in loss_config. tinker: its
    keys for this loss are not published, so its loss_config stays empty and its own bounds hold.
Fails closed when: the provider has no `cispo`; bounds other than the default are asked of tinker; a bound is negative,
    or a range is without 1. Never falls back to `importance_sampling`.
Deviates from the paper by: an upper bound of 4, the providers' order of magnitude (modal's own is 5); the paper tunes
    only the upper one. Some back ends of modal refuse the keys: None sends none.
Paper: arXiv 2506.13585 (MiniMax-M1).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from algorithms.clipping import NO_CLIP, Clip, clip_range
from algorithms.groups import LossContext, group_loss
from algorithms.grpo import advantages

__all__ = ["DEFAULT_HIGH", "DEFAULT_LOW", "LOSS_FUNCTION", "advantages", "build_loss", "loss_terms"]

LOSS_FUNCTION = "cispo"
DEFAULT_LOW, DEFAULT_HIGH = 0.0, 4.0


def loss_terms(provider: str, low: float | None = DEFAULT_LOW, high: float | None = DEFAULT_HIGH) -> Clip:
    """The bounds of the ratio as the provider takes them; None leaves one to the provider.

    Raises:
        ValueError: as `clip_range`, or bounds for tinker that are not its own.
    """
    if provider != "tinker":
        return clip_range(provider, low, high)
    if low not in {None, DEFAULT_LOW} or high not in {None, DEFAULT_HIGH}:
        raise ValueError(
            f"clip_low_threshold is {low}, clip_high_threshold is {high}: how tinker's cispo takes bounds is not "
            f"published; leave them out (its own are {DEFAULT_LOW:g} and {DEFAULT_HIGH:g}), or use another provider"
        )
    return NO_CLIP


def build_loss(sample: Mapping[str, Any], cycle: int, request: Mapping[str, Any], ctx: LossContext) -> dict[str, Any]:
    """The cookbook's contract: one sampled group in, one `forward_backward` payload out; see `group_loss`."""
    return group_loss(sample, request, ctx, advantages, LOSS_FUNCTION, clip=loss_terms(ctx.provider))
