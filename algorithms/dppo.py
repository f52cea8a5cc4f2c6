"""DPPO: a token is left out when its probability has moved too far, not when its ratio has.

Contract: GRPO-shaped data under the provider's own `dppo` loss; no critic.
Maths: A_i = (r_i − mean r) / std r over the group. Loss: −Σ mask·ratio·A. With p = exp(lp) and μ = exp(q), the mask is
    0 where A > 0 and the divergence of p above μ exceeds delta_high, or A < 0 and that of p below μ exceeds delta_low.
    The divergence is |p − μ| (binary_tv), or the KL of "this token or any other" (binary_kl): the deployment's choice.
Loss per provider: `dppo` on modal and local: delta_low and delta_high in loss_config. tinker has none.
Fails closed when: the provider has no `dppo` (tinker), before anything is allocated; a delta is negative. Never falls
    back to `ppo`.
Deviates from the paper by: the binary divergences only, not top-K; GRPO's advantages with the division by the
    deviation, and a sum over tokens.
Paper: arXiv 2602.04879.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from algorithms.groups import LossContext, group_loss
from algorithms.grpo import advantages
from algorithms.loss_terms import LossTerms
from algorithms.losses import non_negative, require_advertised_loss

__all__ = ["DEFAULT_DELTA", "LOSS_FUNCTION", "advantages", "build_loss", "loss_terms"]

LOSS_FUNCTION = "dppo"
DEFAULT_DELTA = 0.2


def loss_terms(provider: str, delta_low: float = DEFAULT_DELTA, delta_high: float = DEFAULT_DELTA) -> LossTerms:
    """The divergence allowed where the advantage is negative (`delta_low`) and where it is positive (`delta_high`).

    Raises:
        ValueError: a provider without `dppo`, a delta that is negative or not finite.
    """
    require_advertised_loss(provider, LOSS_FUNCTION)
    return LossTerms(loss_config=non_negative(delta_low=delta_low, delta_high=delta_high))


def build_loss(sample: Mapping[str, Any], cycle: int, request: Mapping[str, Any], ctx: LossContext) -> dict[str, Any]:
    """The cookbook's contract: one sampled group in, one `forward_backward` payload out; see `group_loss`."""
    return group_loss(sample, request, ctx, advantages, LOSS_FUNCTION, terms=loss_terms(ctx.provider))
