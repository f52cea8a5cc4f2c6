"""REINFORCE++: the group's advantage, less a KL term against the initial weights on every token.

Contract: G completions of each prompt, one reward each; a frozen reference run (its sampler made once, never trained)
    that answers the log-probs of what was sampled.
Maths: A_it = r_i − mean r − penalty_it, with d_t = lp − ref at token t. `kl` "k2": β·½d_t², Whitney's cookbook's.
    "k1": β·Σ_(s≥t) d_s, the paper's per-token reward −β·d summed over what is still to come. "k2_gradient": β·d_t, the
    gradient of the k2 loss ½d² itself (the same numbers as `kl_adjust_advantages`). Loss: −Σ ratio·A.
Loss per provider: `importance_sampling`, empty loss_config, everywhere; `ppo` as an option.
Fails closed when: the provider lacks the loss or `logprobs`; a sequence comes without reference log-probs.
Deviates from the paper by: the default. ½d² as a penalty is the gradient of no KL: never negative, it makes every token
    rarer, and drives one that is already rarer than in the reference further away from it. "k1" (the paper's) and
    "k2_gradient" pull both ways: take one of them, unless you follow Whitney's cookbook. No batch whitening unless
    asked for (`build_batch(whiten=True)`: after the group's mean, before the KL term, as in the paper's baseline
    variant), no clipping with importance_sampling.
Paper: arXiv 2501.03262.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, Literal

from algorithms.groups import LossContext, group_loss
from algorithms.grpo_nostd import advantages
from algorithms.kl import KlPenalty, TokenPenalty

__all__ = ["DEFAULT_KL_COEF", "LOSS_FUNCTION", "Kl", "advantages", "build_loss", "penalty"]

LOSS_FUNCTION = "importance_sampling"
DEFAULT_KL_COEF = 0.05

Kl = Literal["k2", "k1", "k2_gradient"]


def penalty(kl: Kl = "k2", coef: float = DEFAULT_KL_COEF) -> TokenPenalty:
    """What is subtracted from every token's advantage: (logprobs_T, reference_logprobs_T) → penalties_T.

    Raises:
        ValueError: an unknown `kl`, a coefficient that is negative or not finite.
    """
    if kl not in {"k2", "k1", "k2_gradient"}:
        raise ValueError(f"kl {kl!r} is unknown: use 'k2', 'k1' or 'k2_gradient'")
    each = KlPenalty(coef, "k2" if kl == "k2" else "k1")
    if kl != "k1" or coef == 0:
        return each

    def to_come(logprobs: Sequence[float], reference_logprobs: Sequence[float]) -> list[float]:
        return list(accumulate(reversed(each(logprobs, reference_logprobs))))[::-1]

    return to_come


def build_loss(sample: Mapping[str, Any], cycle: int, request: Mapping[str, Any], ctx: LossContext) -> dict[str, Any]:
    """The cookbook's contract, see `group_loss`; each sequence carries its `reference_logprobs`."""
    return group_loss(sample, request, ctx, advantages, LOSS_FUNCTION, kl=penalty())
