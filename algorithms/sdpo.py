"""SDPO: self-distillation policy optimization, from feedback. (Not "sDPO", which is DPO on subsets of its data.)

Contract: the teacher is the same base model, frozen, whose prompt holds the question, the student's own attempt and
    feedback on it; it judges that very attempt token by token. The signal is the feedback: no reward, no answer shown.
Maths: A_t = teacher_lp − student_lp on completion tokens: tokens that the feedback makes less likely are pushed down,
    and those it leaves alone or confirms are not.
Loss per provider: `importance_sampling`, empty loss_config, on modal, tinker and local alike.
Fails closed when: no source of feedback is named; the provider has no `importance_sampling` or `logprobs`. An attempt
    without feedback (no sibling succeeded, say) has no teacher answer: it is dropped and counted.
Deviates from the paper by: one sampled token instead of the divergence over the (top-K) vocabulary; the teacher is the
    frozen base model (Whitney's), the paper's is the current policy or its moving average.
Paper: arXiv 2601.20802 ("Reinforcement Learning via Self-Distillation").
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from algorithms.distillation import distillation_group
from algorithms.groups import LossContext
from algorithms.losses import forward_backward_payload, require_advertised_loss

LOSS_FUNCTION = "importance_sampling"

FEEDBACK_TEMPLATE = """{question}

An earlier attempt at this:

{attempt}

What was found when the attempt was checked:

{feedback}

Taking this into account, solve the original question properly."""


def build_loss(sample: Mapping[str, Any], cycle: int, request: Mapping[str, Any], ctx: LossContext) -> dict[str, Any]:
    """One sampled group, each sequence with `teacher_logprobs` (one per token, or None); one payload out.

    Raises:
        ValueError: as the module says under "Fails closed when".
        NoGradientError: nothing to send: no attempt with feedback that changes the teacher's mind.
    """
    require_advertised_loss(ctx.provider, LOSS_FUNCTION)
    group = distillation_group(request["prompt"]["token_ids"], sample["sequences"])
    return forward_backward_payload(group.data, LOSS_FUNCTION)
