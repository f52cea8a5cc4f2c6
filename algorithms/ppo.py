"""PPO without a critic: GRPO's advantages under PPO's clipped objective.

Contract: G completions of each prompt, one reward each; group-relative advantages in place of a critic's.
Maths: A_i = (r_i − mean r) / std r over the group. Loss: −Σ min(ratio·A, clamp(ratio, 0.8, 1.2)·A): once a token's
    ratio has left the range in the direction its advantage pushes, it has no gradient.
Loss per provider: `ppo`. tinker: bounds as per-token tensors on the datum; modal and local: scalars
    clip_low_threshold and clip_high_threshold in loss_config.
Fails closed when: the provider has no `ppo`; a bound is negative, or a range is without 1; a group has one completion.
    It never sends `ppo_critic`: the algorithm with a critic is of that name.
Deviates from the paper by: no value function, no GAE, no entropy bonus.
Paper: arXiv 1707.06347; advantages arXiv 2402.03300.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from algorithms.groups import LossContext, group_loss
from algorithms.grpo import advantages
from algorithms.loss_terms import LossTerms, clip_range

__all__ = ["DEFAULT_HIGH", "DEFAULT_LOW", "LOSS_FUNCTION", "advantages", "build_loss", "loss_terms"]

LOSS_FUNCTION = "ppo"
DEFAULT_LOW, DEFAULT_HIGH = 0.8, 1.2


def loss_terms(provider: str, low: float | None = DEFAULT_LOW, high: float | None = DEFAULT_HIGH) -> LossTerms:
    """The bounds of the ratio as the provider takes them; None leaves one to the provider. See `clip_range`."""
    return clip_range(provider, low, high)


def build_loss(sample: Mapping[str, Any], cycle: int, request: Mapping[str, Any], ctx: LossContext) -> dict[str, Any]:
    """The cookbook's contract: one sampled group in, one `forward_backward` payload out; see `group_loss`."""
    return group_loss(sample, request, ctx, advantages, LOSS_FUNCTION, terms=loss_terms(ctx.provider))
