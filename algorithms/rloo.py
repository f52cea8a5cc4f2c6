"""RLOO: REINFORCE, each completion against the mean of the others.

Contract: G completions of each prompt, one reward each; a reference run when a KL term is part of the objective.
Maths: A_i = r_i − mean of the other rewards, which is G/(G − 1) times r_i − mean r and unbiased, since b does not hold
    r_i. With a KL term in the reward, r_i − β·Σ_t kl_t takes the place of r_i. Loss: −Σ ratio·A.
Loss per provider: `importance_sampling`, empty loss_config, on modal, tinker and local alike.
Fails closed when: the provider has no `importance_sampling`; a group has one completion; a KL term without reference
    log-probs. The group mean of GRPO is not a substitute.
Deviates from the paper by: no KL term unless asked for, as in Whitney's cookbook. The paper's is, in the table `[kl]`,
    `coef` above 0 (its β), `estimator = "k1"` and `place = "reward"`.
Paper: arXiv 2402.14740.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from algorithms.advantages import Advantages, Reward, leave_one_out_baseline
from algorithms.groups import LossContext, group_loss
from algorithms.kl import KlPenalty

LOSS_FUNCTION = "importance_sampling"


def advantages(rewards: Sequence[Reward], lengths: Sequence[int]) -> Advantages:
    """r − mean of the others; see `leave_one_out_baseline` for what raises."""
    return leave_one_out_baseline(rewards)


def build_loss(
    sample: Mapping[str, Any],
    cycle: int,
    request: Mapping[str, Any],
    ctx: LossContext,
    *,
    kl: KlPenalty | None = None,
) -> dict[str, Any]:
    """The cookbook's contract, see `group_loss`; with `kl` each sequence carries its `reference_logprobs`."""
    return group_loss(sample, request, ctx, advantages, LOSS_FUNCTION, kl=kl)
