"""OPD: on-policy distillation.

Contract: the student samples; a frozen teacher of any model with the same tokenizer gives the log-probs of the
    student's tokens under the same prompt. No reward; the teacher's sampler is synced once, never sampled or trained.
Maths: A_t = teacher_lp − student_lp, minus the single-sample reverse KL(student ‖ teacher) of token t, on completion
    tokens. Options: a scale, a discounted sum of later tokens' terms, a bound on each A_t.
Loss per provider: `importance_sampling`, empty loss_config, on modal, tinker and local alike.
Fails closed when: the provider has no `importance_sampling` or `logprobs`; the two tokenizers differ; a teacher answer
    does not cover a completion. Empty completions and ones without a teacher answer are dropped and counted.
Deviates from the paper by: one sampled token estimates the divergence, not the whole vocabulary; always on-policy (the
    paper's λ = 1) and always the reverse KL (the paper's β → 1).
Paper: arXiv 2306.13649 (GKD); as per-token advantages: Thinking Machines Lab, "On-Policy Distillation" (2025).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from algorithms.distillation import distillation_group
from algorithms.groups import LossContext
from algorithms.losses import forward_backward_payload, require_advertised_loss

LOSS_FUNCTION = "importance_sampling"


def build_loss(sample: Mapping[str, Any], cycle: int, request: Mapping[str, Any], ctx: LossContext) -> dict[str, Any]:
    """One sampled group in, one `forward_backward` payload out; a group of one is fine.

    Each of `sample["sequences"]` carries `teacher_logprobs`, one per token, or None.

    Raises:
        ValueError: as the module says under "Fails closed when".
        NoGradientError: nothing to send: no completion with a teacher answer that differs from the student's.
    """
    require_advertised_loss(ctx.provider, LOSS_FUNCTION)
    group = distillation_group(request["prompt"]["token_ids"], sample["sequences"])
    return forward_backward_payload(group.data, LOSS_FUNCTION)
