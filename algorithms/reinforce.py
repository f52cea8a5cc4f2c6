"""REINFORCE with a baseline: the policy gradient itself, and something to compare a reward with.

Contract: G completions of each prompt, one reward each; no critic, no reference run, no clipping.
Maths: A_i = r_i − b. `baseline` "group": b is the group's mean reward. "moving": b is the exponentially weighted mean
    of the earlier cycles' mean rewards (0 in the first cycle), which needs no siblings: it knows how well the policy
    did lately, not how hard this prompt is. Loss: −Σ ratio·A over tokens, with the ratio at 1 in a single update.
Loss per provider: `importance_sampling`, empty loss_config, on modal, tinker and local alike.
Fails closed when: the provider has no `importance_sampling`; a group has one completion and the baseline is "group".
Deviates from the paper by: the group's mean, which holds r_i itself and so shrinks the gradient by (G − 1)/G (`rloo`
    does not); the whole completion is one action, with no discount.
Paper: Williams 1992, "Simple statistical gradient-following algorithms", Machine Learning 8, 229-256.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from algorithms.advantages import Advantages, Reward, baseline_advantages, group_mean_advantages, moving_baseline
from algorithms.groups import LossContext, group_loss

LOSS_FUNCTION = "importance_sampling"

Baseline = Literal["group", "moving"]


def advantages(
    rewards: Sequence[Reward],
    lengths: Sequence[int],
    *,
    baseline: Baseline = "group",
    earned: Sequence[Reward] = (),
    decay: float = 0.9,
) -> Advantages:
    """r − b of a group.

    Args:
        rewards: rewards_G.
        lengths: lengths_G, not used.
        baseline: the group's mean, or the moving mean of `earned`.
        earned: the mean reward of every earlier cycle, the latest last; for "moving".
        decay: of `moving_baseline`.

    Raises:
        ValueError: an unknown baseline, or as `group_mean_advantages` and `moving_baseline`.
    """
    if baseline == "group":
        return group_mean_advantages(rewards)
    if baseline != "moving":
        raise ValueError(f"baseline {baseline!r} is unknown: use 'group' or 'moving'")
    return baseline_advantages(rewards, moving_baseline(earned, decay=decay))


def build_loss(sample: Mapping[str, Any], cycle: int, request: Mapping[str, Any], ctx: LossContext) -> dict[str, Any]:
    """The cookbook's contract: one sampled group in, one `forward_backward` payload out; see `group_loss`."""
    return group_loss(sample, request, ctx, advantages, LOSS_FUNCTION)
