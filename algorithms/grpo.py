"""GRPO: group-relative policy optimization.

Contract: G completions of each prompt, one reward each; no critic, no reference run, no KL term.
Maths: A_i = (r_i − mean r) / std r, with the group's population std; a std below 1e-6 only centres. Every token of
    completion i carries A_i. Loss: −Σ ratio·A over tokens: the plain sum, as Whitney's cookbook sends it, or one of the
    means of `scale_data`.
Loss per provider: `importance_sampling`, empty loss_config, on modal, tinker and local alike.
Fails closed when: the provider has no `importance_sampling`; the prompt is empty; sequences and rewards do not pair; a
    group has one completion. Equal rewards, and completions without a finite reward, send no datum and are counted.
Deviates from the paper by: no ratio clipping (one update per batch: the ratio is 1), no KL to a reference model;
    with `token_mean` the mean is over all tokens of the step, the paper's own is within completions (`sequence_mean`).
Paper: arXiv 2402.03300 (DeepSeekMath).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from algorithms.advantages import Advantages, Reward, StdConvention, group_mean_advantages
from algorithms.groups import LossContext, group_loss

LOSS_FUNCTION = "importance_sampling"


def advantages(
    rewards: Sequence[Reward], lengths: Sequence[int], *, std: StdConvention = "population", eps: float = 0.0
) -> Advantages:
    """(r − r̄)/std of a group; see `group_mean_advantages` for `std`, `eps` and what raises."""
    return group_mean_advantages(rewards, normalize_std=True, std=std, eps=eps)


def build_loss(sample: Mapping[str, Any], cycle: int, request: Mapping[str, Any], ctx: LossContext) -> dict[str, Any]:
    """The cookbook's contract: one sampled group in, one `forward_backward` payload out; see `group_loss`."""
    return group_loss(sample, request, ctx, advantages, LOSS_FUNCTION)
