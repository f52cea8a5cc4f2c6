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
from functools import partial
from typing import Any, Protocol

from algorithms.advantages import Reward, group_mean_advantages
from algorithms.groups import GroupData, build_group
from algorithms.losses import forward_backward_payload, require_advertised_loss

LOSS_FUNCTION = "importance_sampling"


class LossContext(Protocol):
    """What GRPO needs of the loop's `ctx`."""

    @property
    def provider(self) -> str:
        """The provider of the run: "modal", "tinker" or "local"."""
        ...


def group_data(
    prompt_tokens: Sequence[int], sequences: Sequence[Mapping[str, Any]], rewards: Sequence[Reward]
) -> GroupData:
    """Score-normalised datums of one group; see `algorithms.groups.build_group` for what is dropped and what raises."""
    return build_group(prompt_tokens, sequences, rewards, partial(group_mean_advantages, normalize_std=True))


def build_loss(sample: Mapping[str, Any], cycle: int, request: Mapping[str, Any], ctx: LossContext) -> dict[str, Any]:
    """The cookbook's contract: one sampled group in, one `forward_backward` payload out.

    Each of `sample["sequences"]` carries its `reward` (a number, or None when it could not be scored). The loss is the
    plain sum; a loop that wants a mean over the whole step scales the concatenated data.

    Raises:
        ValueError: as the module says under "Fails closed when".
        NoGradientError: the group has nothing to teach.
    """
    require_advertised_loss(ctx.provider, LOSS_FUNCTION)
    sequences = sample["sequences"]
    group = group_data(request["prompt"]["token_ids"], sequences, [sequence.get("reward") for sequence in sequences])
    return forward_backward_payload(group.data, LOSS_FUNCTION)
