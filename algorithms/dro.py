"""DRO: likelihood of what did well, held back by a square where the sampler's log-prob is left.

Contract: G completions of each prompt, one reward each, under the provider's own `dro` loss.
Maths: A_i = r_i − mean r. Loss: −Σ (lp·A − ½β(lp − q)²): no ratio, so the gradient is that of a regression of
    β(lp − q) on A. The square has no advantage in it: a mean over the step scales the datums' *weights*.
Loss per provider: `dro` on tinker (empty loss_config: its β is its own) and local (beta in loss_config, 0.05 if none).
    modal has none.
Fails closed when: the provider has no `dro` (modal), before anything is allocated; a β is asked of tinker; β < 0; a
    group has one completion.
Deviates from the paper by: the group's mean in place of a learned value function, per token instead of per trajectory.
Paper: arXiv 2405.19107.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from algorithms.groups import LossContext, group_loss
from algorithms.grpo_nostd import advantages
from algorithms.loss_terms import NO_TERMS, LossTerms
from algorithms.losses import non_negative, require_advertised_loss

__all__ = ["LOSS_FUNCTION", "advantages", "build_loss", "loss_terms"]

LOSS_FUNCTION = "dro"


def loss_terms(provider: str, beta: float | None = None) -> LossTerms:
    """The weight β of the square; None leaves it to the provider.

    Raises:
        ValueError: a provider without `dro`, a β for tinker, or one that is negative or not finite.
    """
    require_advertised_loss(provider, LOSS_FUNCTION)
    if beta is None:
        return NO_TERMS
    if provider == "tinker":
        raise ValueError(f"beta is {beta}: tinker's dro takes an empty loss_config here; leave beta out")
    return LossTerms(loss_config=non_negative(beta=beta))


def build_loss(sample: Mapping[str, Any], cycle: int, request: Mapping[str, Any], ctx: LossContext) -> dict[str, Any]:
    """The cookbook's contract: one sampled group in, one `forward_backward` payload out; see `group_loss`."""
    return group_loss(sample, request, ctx, advantages, LOSS_FUNCTION, terms=loss_terms(ctx.provider))
