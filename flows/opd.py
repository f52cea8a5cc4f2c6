"""On-policy distillation: the teacher's log-probs of what the student sampled, token by token (arXiv 2306.13649)."""

# Annotations are read by Prefect, so they are no strings here: see flows/lifecycle.py.
from typing import Any

from algorithms import opd as maths
from flows.config import OpdConfig
from flows.durable.attempt import Attempt
from flows.durable.cycles import Cycles
from flows.durable.outcome import Block, BlockOutcome, Start
from flows.lifecycle import block_flow, training_flow
from flows.parts.distillation import distillation_data, sample_students
from flows.parts.step import train_step
from flows.teacher import open_teacher, teacher_logprobs
from flows.training import train


@training_flow("opd")
async def opd(config: OpdConfig) -> dict[str, Any]:
    """Distil a frozen teacher into an adapter, on the student's own samples; returns the run's summary.

    Blocks, Retry and errors: `flows.training.train`.
    """
    return await train("opd", config, opd_cycles)


@block_flow("opd-cycles")
async def opd_cycles(attempt: Attempt, block: Block, config: OpdConfig, start: Start) -> BlockOutcome:
    """A block of cycles, from `start` to a saved state."""
    cycles = await Cycles.begin(attempt, block, start)
    teacher = await open_teacher(attempt, config.teacher)
    for cycle in cycles:
        groups = await sample_students(cycle, config)
        prompts = [[group.prompt_tokens] * len(group.sequences) for group in groups]
        await teacher_logprobs(cycle, teacher, groups, prompts)
        data = distillation_data(cycle, config, groups)
        await train_step(cycle, data, maths.LOSS_FUNCTION)
    return cycles.outcome()
