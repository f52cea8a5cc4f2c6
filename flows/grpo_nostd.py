"""GRPO without the standard deviation: hard prompts and easy ones weigh by their spread, not all the same."""

# Annotations are read by Prefect, so they are no strings here: see flows/lifecycle.py.
from typing import Any

from algorithms import grpo_nostd as maths
from flows.config import GrpoNostdConfig
from flows.durable.attempt import Attempt
from flows.durable.cycles import Cycles
from flows.durable.outcome import Block, BlockOutcome, Start
from flows.lifecycle import block_flow, training_flow
from flows.parts.rollout import sample_groups
from flows.parts.step import train_step
from flows.training import train


@training_flow("grpo_nostd")
async def grpo_nostd(config: GrpoNostdConfig) -> dict[str, Any]:
    """Train an adapter by GRPO with advantages that are only centred; returns the run's summary.

    Blocks, Retry and errors: `flows.training.train`.
    """
    return await train("grpo_nostd", config, grpo_nostd_cycles)


@block_flow("grpo_nostd-cycles")
async def grpo_nostd_cycles(attempt: Attempt, block: Block, config: GrpoNostdConfig, start: Start) -> BlockOutcome:
    """A block of cycles, from `start` to a saved state."""
    cycles = await Cycles.begin(attempt, block, start)
    for cycle in cycles:
        rollouts = await sample_groups(cycle, config)
        batch = rollouts.batch(maths.advantages)
        await train_step(cycle, batch.data, maths.LOSS_FUNCTION)
    return cycles.outcome()
