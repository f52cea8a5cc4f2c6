"""What the three distillation flows share: the student's samples, and the datums a teacher's log-probs make of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from algorithms import Datum, GroupData, distillation_group, reverse_kl, scale_data, soft_target_group
from algorithms.ppo_critic import normalize_advantages
from flows.config import DistillConfig, OpsdConfig
from flows.durable.cycles import Cycle
from flows.parts.record import length_row
from flows.parts.rollout import draw_groups
from tasks.scoring import Group


async def sample_students(cycle: Cycle, config: DistillConfig) -> list[Group]:
    """The student's own completions of the cycle's prompts; nobody rewards them."""
    inputs = cycle.attempt.inputs
    examples = inputs.batch(cycle.number, config.groups_per_cycle)
    drawn = await draw_groups(cycle, examples, [config.group_size] * len(examples))
    groups = [group for group in drawn if group is not None]
    for group in groups:
        group.read(inputs.renderer)
    cycle.metrics |= length_row(groups)
    cycle.samples = [row for group in groups for row in group.sample_rows()]
    return groups


def distillation_data(
    cycle: Cycle, config: DistillConfig, groups: Sequence[Group], *, skip_first: int = 0
) -> list[Datum]:
    """Advantage teacher_lp − student_lp on every token of the student's; `teacher_kl` on the record."""
    _record_divergence(cycle, groups)
    built = [
        distillation_group(
            group.prompt_tokens,
            group.sequences,
            kl_coef=config.teacher_coef,
            discount=config.discount,
            advantage_clip=config.advantage_clip,
            skip_first=skip_first,
        )
        for group in groups
    ]
    data = _counted(cycle, built)
    # Centred before a mean is made of the sum: afterwards a constant would no longer be one.
    return _scaled(config, normalize_advantages(data, scale=False) if config.center_advantages else data, "advantages")


def soft_target_data(cycle: Cycle, config: OpsdConfig, groups: Sequence[Group]) -> list[Datum]:
    """The teacher's K likeliest tokens as soft targets, on the student's own completions."""
    _record_divergence(cycle, groups)
    built = [
        soft_target_group(group.prompt_tokens, group.sequences, k=config.topk, skip_first=config.skip_first_tokens)
        for group in groups
    ]
    return _scaled(config, _counted(cycle, built), "weights")


def _record_divergence(cycle: Cycle, groups: Sequence[Group]) -> None:
    """`teacher_kl`, the curve that distillation brings down; nothing where the teacher judged nothing."""
    divergence = reverse_kl([sequence for group in groups for sequence in group.sequences])
    if math.isfinite(divergence):
        cycle.metrics["teacher_kl"] = divergence


def _counted(cycle: Cycle, built: Sequence[GroupData]) -> list[Datum]:
    """The datums of the whole step; what was dropped on the record."""
    cycle.count_dropped(*(one.dropped_by_reason for one in built))
    return [datum for one in built for datum in one.data]


def _scaled(config: DistillConfig, data: Sequence[Datum], field: Literal["advantages", "weights"]) -> list[Datum]:
    """The datums of the whole step under the configuration's aggregation."""
    return scale_data(data, config.aggregation, constant_length=config.sampling.max_tokens, field=field)
