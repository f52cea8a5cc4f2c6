"""On-policy self-distillation: shown the golden answer, the model teaches itself without it (arXiv 2601.19897)."""

# Annotations are read by Prefect, so they are no strings here: see flows/lifecycle.py.
from typing import Any

from algorithms import opsd as maths
from flows.config import OpsdConfig
from flows.durable.attempt import Attempt
from flows.durable.cycles import Cycles
from flows.durable.outcome import Block, BlockOutcome, Start
from flows.lifecycle import block_flow, training_flow
from flows.parts.distillation import distillation_data, sample_students, soft_target_data
from flows.parts.self_teacher import demonstration_prompts
from flows.parts.step import train_step
from flows.teacher import open_self_teacher, teacher_logprobs
from flows.training import train


@training_flow("opsd")
async def opsd(config: OpsdConfig) -> dict[str, Any]:
    """Distil what the model knows once it has seen the answer, on its own samples; returns the run's summary.

    Blocks, Retry and errors: `flows.training.train`.
    """
    return await train("opsd", config, opsd_cycles)


@block_flow("opsd-cycles")
async def opsd_cycles(attempt: Attempt, block: Block, config: OpsdConfig, start: Start) -> BlockOutcome:
    """A block of cycles, from `start` to a saved state."""
    cycles = await Cycles.begin(attempt, block, start)
    teacher = await open_self_teacher(attempt)
    for cycle in cycles:
        groups = await sample_students(cycle, config)
        prompts = demonstration_prompts(attempt, config, groups)
        await teacher_logprobs(cycle, teacher, groups, prompts, topk=config.topk)
        if config.topk:
            data, loss_function = soft_target_data(cycle, config, groups), maths.SOFT_LOSS_FUNCTION
        else:
            data = distillation_data(cycle, config, groups, skip_first=config.skip_first_tokens)
            loss_function = maths.LOSS_FUNCTION
        await train_step(cycle, data, loss_function)
    return cycles.outcome()
