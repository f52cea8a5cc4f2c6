"""MaxRL: what the rare success is worth, in two readings that share the name.

Contract: an explicit estimator over G completions of each prompt; no provider setting stands for it.
Maths: `estimator` "beat_best": A_i = r_i − best of the other rewards, Whitney's cookbook's reading: at most one
    completion is pushed up, and only if it beat all others. "mean_normalized": A_i = (r_i − mean r) / mean r, all 0
    where the mean is not positive, the paper's: a success counts 1/p − 1 for a prompt that succeeds with rate p, which
    is the gradient of log-likelihood instead of the success rate's. Loss: −Σ ratio·A.
Loss per provider: `importance_sampling`, empty loss_config, on modal, tinker and local alike.
Fails closed when: the provider has no `importance_sampling`; a group has one completion. It is never mapped to GRPO.
Deviates from the paper by: the default, which is not in the paper; "mean_normalized" is the paper's estimator.
Paper: arXiv 2602.02710.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from algorithms.advantages import Advantages, Reward, max_relative_advantage, mean_normalized_advantage
from algorithms.groups import LossContext, group_loss

LOSS_FUNCTION = "importance_sampling"

Estimator = Literal["beat_best", "mean_normalized"]


def advantages(rewards: Sequence[Reward], lengths: Sequence[int], *, estimator: Estimator = "beat_best") -> Advantages:
    """The estimator's advantages_G.

    Raises:
        ValueError: an unknown estimator, fewer than two rewards.
    """
    if estimator == "beat_best":
        return max_relative_advantage(rewards)
    if estimator != "mean_normalized":
        raise ValueError(f"estimator {estimator!r} is unknown: use 'beat_best' or 'mean_normalized'")
    return mean_normalized_advantage(rewards)


def build_loss(sample: Mapping[str, Any], cycle: int, request: Mapping[str, Any], ctx: LossContext) -> dict[str, Any]:
    """The cookbook's contract: one sampled group in, one `forward_backward` payload out; see `group_loss`."""
    return group_loss(sample, request, ctx, advantages, LOSS_FUNCTION)
