"""SDPO: shown feedback on its own attempt, the model judges that attempt token by token (arXiv 2601.20802)."""

# Annotations are read by Prefect, so they are no strings here: see flows/lifecycle.py.
from typing import Any

from algorithms import sdpo as maths
from flows.config import SdpoConfig
from flows.durable.attempt import Attempt
from flows.durable.cycles import Cycles
from flows.durable.outcome import Block, BlockOutcome, Start
from flows.lifecycle import block_flow, training_flow
from flows.parts.distillation import distillation_data
from flows.parts.rollout import scored_groups
from flows.parts.self_teacher import feedback_prompts
from flows.parts.step import train_step
from flows.teacher import open_self_teacher, teacher_logprobs
from flows.training import train


@training_flow("sdpo")
async def sdpo(config: SdpoConfig) -> dict[str, Any]:
    """Distil feedback on the model's own attempts; returns the run's summary.

    Blocks, Retry and errors: `flows.training.train`.
    """
    return await train("sdpo", config, sdpo_cycles)


@block_flow("sdpo-cycles")
async def sdpo_cycles(attempt: Attempt, block: Block, config: SdpoConfig, start: Start) -> BlockOutcome:
    """A block of cycles, from `start` to a saved state."""
    cycles = await Cycles.begin(attempt, block, start)
    teacher = await open_self_teacher(attempt)
    for cycle in cycles:
        groups = await scored_groups(cycle, config)
        prompts = await feedback_prompts(cycle, config, groups)
        await teacher_logprobs(cycle, teacher, groups, prompts)
        data = distillation_data(cycle, config, groups)
        await train_step(cycle, data, maths.LOSS_FUNCTION)
    return cycles.outcome()
