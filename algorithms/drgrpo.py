"""Dr. GRPO: GRPO without the deviation, with an explicit length normaliser and no KL term.

Contract: G completions of each prompt, one reward each; no-std advantages, the caller's length normaliser (by default
    Whitney's, each completion's own length; the paper argues for a constant), no implicit KL penalty.
Maths: A_i = (r_i − mean r) / L, the same for every token of completion i. `normalizer` "completion": L is completion
    i's own length, as Whitney's cookbook does it. "constant": L is max_tokens for all of them, as the paper does it,
    which takes away the reward for being long when wrong. Loss: −Σ ratio·A.
Loss per provider: `importance_sampling`, empty loss_config, on modal, tinker and local alike.
Fails closed when: the provider has no `importance_sampling`; a group has one completion; "constant" without
    max_tokens. Neither `grpo` nor `grpo_len_norm` alone is this.
Deviates from the paper by: the default normaliser, which is the one the paper argues against; "constant" is its own. No
    ratio clipping. An `aggregation` other than "sum" would normalise a second time.
Paper: arXiv 2503.20783.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from algorithms.advantages import Advantages, Reward, group_mean_advantages, per_token
from algorithms.groups import LossContext, group_loss

LOSS_FUNCTION = "importance_sampling"

Normalizer = Literal["completion", "constant"]


def advantages(
    rewards: Sequence[Reward],
    lengths: Sequence[int],
    *,
    normalizer: Normalizer = "completion",
    max_tokens: int | None = None,
) -> Advantages:
    """(r − r̄)/L of a group, L in tokens: each completion's own length, or `max_tokens`.

    Raises:
        ValueError: an unknown normaliser, "constant" without `max_tokens`, or as `group_mean_advantages`.
    """
    centred = group_mean_advantages(rewards)
    if normalizer == "completion":
        return per_token(centred, lengths)
    if normalizer != "constant":
        raise ValueError(f"normalizer {normalizer!r} is unknown: use 'completion' or 'constant'")
    if max_tokens is None:
        raise ValueError("normalizer 'constant' needs max_tokens, the longest completion that could be sampled")
    return per_token(centred, [max_tokens] * len(rewards))


def build_loss(sample: Mapping[str, Any], cycle: int, request: Mapping[str, Any], ctx: LossContext) -> dict[str, Any]:
    """The cookbook's contract: one sampled group in, one `forward_backward` payload out; see `group_loss`."""
    return group_loss(sample, request, ctx, advantages, LOSS_FUNCTION)
