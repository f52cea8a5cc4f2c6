"""GRPO without the standard deviation: the group's mean is the baseline, and nothing is divided.

Contract: G completions of each prompt, one reward each; no critic, no reference run.
Maths: A_i = r_i − mean r, the same for every token of completion i. Loss: −Σ ratio·A. A group that is nearly decided
    (7 of 8 right) weighs less than a mixed one, where GRPO's division would give it the same weight.
Loss per provider: `importance_sampling`, empty loss_config, on modal, tinker and local alike.
Fails closed when: the provider has no `importance_sampling`; a group has one completion. It never divides by the
    group's deviation: that is `grpo`.
Deviates from the paper by: the plain sum over tokens, where the paper divides by a constant (`drgrpo` does, as an
    option; so does aggregation "constant"); no ratio clipping.
Paper: arXiv 2503.20783 (Dr. GRPO), for leaving the deviation out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from algorithms.advantages import Advantages, Reward, group_mean_advantages
from algorithms.groups import LossContext, group_loss

LOSS_FUNCTION = "importance_sampling"


def advantages(rewards: Sequence[Reward], lengths: Sequence[int]) -> Advantages:
    """r − r̄ of a group; see `group_mean_advantages` for what raises."""
    return group_mean_advantages(rewards)


def build_loss(sample: Mapping[str, Any], cycle: int, request: Mapping[str, Any], ctx: LossContext) -> dict[str, Any]:
    """The cookbook's contract: one sampled group in, one `forward_backward` payload out; see `group_loss`."""
    return group_loss(sample, request, ctx, advantages, LOSS_FUNCTION)
