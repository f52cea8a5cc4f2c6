"""OPSD: on-policy self-distillation from demonstrations.

Contract: the teacher is the same base model, frozen, whose prompt holds the question and its golden answer as a
    demonstration; the student, asked the bare question, samples and learns to be as sure without it. No reward.
Maths: A_t = teacher_lp − student_lp on completion tokens (minus the single-sample reverse KL). Option: the teacher's
    top K tokens, renormalised, as soft targets (forward KL), K = 20; then, or in both, the first tokens can be skipped.
Loss per provider: `importance_sampling`, empty loss_config, on modal, tinker and local alike; with soft targets
    `cross_entropy` with (N, K) targets, on tinker and local.
Fails closed when: a question has no golden answer; the provider has no `logprobs`; soft targets are asked of modal.
Deviates from the paper by: the single-token signal is the default (Whitney's); the paper's own is top-K soft targets
    with the first 3 tokens skipped (`build_soft_loss`). The teacher is never synced again; the paper tried an EMA too.
Paper: arXiv 2601.19897 (SDFT, "Self-Distillation Enables Continual Learning").
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from algorithms.distillation import distillation_group
from algorithms.groups import LossContext
from algorithms.losses import forward_backward_payload, require_advertised_loss
from algorithms.soft_targets import TOP_K, require_soft_targets, soft_target_group

LOSS_FUNCTION = "importance_sampling"
SOFT_LOSS_FUNCTION = "cross_entropy"
SKIP_FIRST = 3

DEMONSTRATION_TEMPLATE = """{question}

Somebody who knows this well answered:

{answer}

Now answer the question yourself, in your own words and in the same spirit."""


def build_loss(sample: Mapping[str, Any], cycle: int, request: Mapping[str, Any], ctx: LossContext) -> dict[str, Any]:
    """One sampled group, each sequence with `teacher_logprobs` (one per token, or None); one payload out.

    Raises:
        ValueError: as the module says under "Fails closed when".
        NoGradientError: nothing to send.
    """
    require_advertised_loss(ctx.provider, LOSS_FUNCTION)
    group = distillation_group(request["prompt"]["token_ids"], sample["sequences"])
    return forward_backward_payload(group.data, LOSS_FUNCTION)


def build_soft_loss(
    sample: Mapping[str, Any], cycle: int, request: Mapping[str, Any], ctx: LossContext
) -> dict[str, Any]:
    """The paper's form: each sequence carries `teacher_topk`, rows of [token, logprob] per token, or None.

    Raises:
        ValueError: the provider has no (N, K) targets, rows do not pair with tokens.
        NoGradientError: nothing to send.
    """
    require_soft_targets(ctx.provider)
    group = soft_target_group(request["prompt"]["token_ids"], sample["sequences"], k=TOP_K, skip_first=SKIP_FIRST)
    return forward_backward_payload(group.data, SOFT_LOSS_FUNCTION)
