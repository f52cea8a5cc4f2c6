"""TTT: test-time training to discover a solution of one problem.

Contract: one problem, a verifier with a continuous reward, G = 32–64 completions from each starting state; the states
    are the best solutions so far, chosen by PUCT from a buffer (`algorithms.puct`), the bare problem among them.
Maths: A_i = e_i / Z_i − 1, e_i = exp(β·(r_i − max r)), Z_i the mean of the others' e: a group's best counts
    exponentially. β fixed, or the smallest at which KL(softmax(β·r) ‖ uniform) = ln 2 (`algorithms.entropic`).
Loss per provider: `importance_sampling`, empty loss_config, on modal, tinker and local alike.
Fails closed when: the provider has no `importance_sampling`; a group has one completion; the data has no one problem.
    Equal rewards, and completions without a finite reward, send no datum and are counted.
Deviates from the paper by: no KL penalty to the base model in the advantage, which the paper has. What the paper leaves
    open about the buffer is chosen as `algorithms.puct` lists it.
Paper: arXiv 2601.16175 (TTT-Discover, "Learning to Discover at Test Time").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from algorithms.advantages import Advantages, Reward
from algorithms.entropic import entropic_advantages
from algorithms.groups import LossContext, group_loss

LOSS_FUNCTION = "importance_sampling"


def advantages(rewards_G: Sequence[Reward], lengths_G: Sequence[int], *, beta: float | None = None) -> Advantages:
    """Leave-one-out entropic advantages; lengths play no part. `beta` None is adaptive, 2.0 a usual fixed value.

    Raises:
        ValueError: fewer than two rewards, or a β that is not a positive number.
    """
    return entropic_advantages(rewards_G, beta=beta)


def build_loss(sample: Mapping[str, Any], cycle: int, request: Mapping[str, Any], ctx: LossContext) -> dict[str, Any]:
    """One sampled group, each sequence with its `reward`, in; one `forward_backward` payload out, with an adaptive β.

    Raises:
        ValueError: as the module says under "Fails closed when".
        NoGradientError: the group has nothing to teach.
    """
    return group_loss(sample, request, ctx, advantages, LOSS_FUNCTION)
