"""Length-normalised GRPO: every completion weighs the same, however long it is.

Contract: G completions of each prompt, one reward each; the length normalisation is the caller's, in the advantages.
Maths: A_i = (r_i − mean r) / std r / n_i with n_i the tokens of completion i, the same for each of them. Loss:
    −Σ ratio·A, so that completion i contributes its mean ratio times its GRPO advantage.
Loss per provider: `importance_sampling`, empty loss_config, on modal, tinker and local alike.
Fails closed when: the provider has no `importance_sampling`; a group has one completion. Providers never normalise by
    length on their own, and neither does plain `grpo`.
Deviates from the paper by: the sum over completions where the paper takes the mean; no ratio clipping, no KL term.
    With an `aggregation` other than "sum" the length would be divided by twice.
Paper: arXiv 2402.03300 (DeepSeekMath), the 1/|o_i| of its objective.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from algorithms import grpo
from algorithms.advantages import Advantages, Reward, StdConvention, per_token
from algorithms.groups import LossContext, group_loss

LOSS_FUNCTION = "importance_sampling"


def advantages(
    rewards: Sequence[Reward], lengths: Sequence[int], *, std: StdConvention = "population", eps: float = 0.0
) -> Advantages:
    """GRPO's advantages_G, each divided by its own completion's length.

    Raises:
        ValueError: as `group_mean_advantages`, or numbers of rewards and lengths that differ.
    """
    return per_token(grpo.advantages(rewards, lengths, std=std, eps=eps), lengths)


def build_loss(sample: Mapping[str, Any], cycle: int, request: Mapping[str, Any], ctx: LossContext) -> dict[str, Any]:
    """The cookbook's contract: one sampled group in, one `forward_backward` payload out; see `group_loss`."""
    return group_loss(sample, request, ctx, advantages, LOSS_FUNCTION)
