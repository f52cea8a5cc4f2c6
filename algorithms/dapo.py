"""DAPO: decoupled clip bounds, and groups that are drawn again until they have something to teach.

Contract: overlong completions are filtered, groups are resampled by a declared policy, advantages are computed on what
    is retained, and upper and lower bound of the ratio differ. Every draw is an operation that can be seen.
Maths: A_i = (r_i − mean r) / std r over the retained completions of a prompt. Loss: −Σ min(ratio·A, clamp(ratio, 0.8,
    1.28)·A): more room upwards, where rare tokens grow.
Loss per provider: `ppo`. tinker: bounds as per-token tensors on the datum; modal and local: scalars in loss_config.
Fails closed when: the provider has no `ppo`; a bound is negative, or a range is without 1. One plain batch is not DAPO:
    what was filtered and drawn again is counted.
Deviates from the paper by: nothing in the clip. Whitney calls the entry an approximation, because no loss of the wire
    is named dual-clip; the paper's own decoupled clip *is* ppo with 0.8 and 1.28. (A third, lower bound for A < 0 is
    dual-clip PPO, arXiv 1912.09729, and not DAPO's.) The paper's mean over all tokens is aggregation "token_mean".
Paper: arXiv 2503.14476.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from algorithms.groups import LossContext, group_loss
from algorithms.grpo import advantages
from algorithms.loss_terms import LossTerms, clip_range
from algorithms.overlong import is_overlong

__all__ = ["DEFAULT_HIGH", "DEFAULT_LOW", "LOSS_FUNCTION", "advantages", "build_loss", "loss_terms"]

LOSS_FUNCTION = "ppo"
DEFAULT_LOW, DEFAULT_HIGH = 0.8, 1.28


def loss_terms(provider: str, low: float | None = DEFAULT_LOW, high: float | None = DEFAULT_HIGH) -> LossTerms:
    """The bounds of the ratio as the provider takes them; None leaves one to the provider. See `clip_range`."""
    return clip_range(provider, low, high)


def build_loss(sample: Mapping[str, Any], cycle: int, request: Mapping[str, Any], ctx: LossContext) -> dict[str, Any]:
    """The cookbook's contract for a group that is complete: overlong completions are left out, nothing is drawn."""
    sequences = [
        {**sequence, "reward": None if is_overlong(sequence) else sequence.get("reward")}
        for sequence in sample["sequences"]
    ]
    terms = loss_terms(ctx.provider)
    return group_loss({"sequences": sequences}, request, ctx, advantages, LOSS_FUNCTION, terms=terms)
