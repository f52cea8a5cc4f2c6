"""SAPO: a soft gate on the ratio in place of a hard clip.

Contract: the provider's own `sapo` loss with explicit temperatures; there is no substitute for it.
Maths: A_i = (r_i − mean r) / std r over the group. Loss: −Σ (4/τ)·σ(τ(ratio − 1))·A with τ = tau_pos where A > 0, else
    tau_neg: at ratio 1 the gradient is importance sampling's, and away from 1 it fades instead of stopping. Where A < 0
    it fades sooner.
Loss per provider: `sapo` on local: tau_pos and tau_neg in loss_config. modal and tinker have none.
Fails closed when: the provider has no `sapo` (modal, tinker), before anything is allocated. SkyRL's trainer has the
    loss, but the API in front of it takes seven fixed names and this is not among them. Never a clipped stand-in.
Deviates from the paper by: a sum over tokens where the paper takes means; `sequence_mean` is the paper's.
Paper: arXiv 2511.20347.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from algorithms.groups import LossContext, group_loss
from algorithms.grpo import advantages
from algorithms.loss_terms import LossTerms
from algorithms.losses import require_advertised_loss

__all__ = ["DEFAULT_TAU_NEG", "DEFAULT_TAU_POS", "LOSS_FUNCTION", "advantages", "build_loss", "loss_terms"]

LOSS_FUNCTION = "sapo"
DEFAULT_TAU_POS, DEFAULT_TAU_NEG = 1.0, 1.05


def loss_terms(provider: str, tau_pos: float = DEFAULT_TAU_POS, tau_neg: float = DEFAULT_TAU_NEG) -> LossTerms:
    """The temperatures of the gate, for positive and for other advantages.

    Raises:
        ValueError: a provider without `sapo`, a temperature that is not above 0 and finite.
    """
    require_advertised_loss(provider, LOSS_FUNCTION)
    for name, tau in (("tau_pos", tau_pos), ("tau_neg", tau_neg)):
        if not 0 < tau < math.inf:
            raise ValueError(f"{name} is {tau}: a temperature must be above 0 and finite")
    return LossTerms(loss_config={"tau_pos": tau_pos, "tau_neg": tau_neg})


def build_loss(sample: Mapping[str, Any], cycle: int, request: Mapping[str, Any], ctx: LossContext) -> dict[str, Any]:
    """The cookbook's contract: one sampled group in, one `forward_backward` payload out; see `group_loss`."""
    return group_loss(sample, request, ctx, advantages, LOSS_FUNCTION, terms=loss_terms(ctx.provider))
