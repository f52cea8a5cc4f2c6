"""GRPO without the standard deviation: hard prompts and easy ones weigh by their spread, not all the same."""

# No `from __future__ import annotations` in a flow's file: a runner loads it under a name that is not importable, and
# Prefect could not find what the string "GrpoNostdConfig" means.
from typing import Any

from algorithms import grpo_nostd as maths
from flows.attempt import Attempt
from flows.config import GrpoNostdConfig
from flows.cycles import Cycles
from flows.lifecycle import block_flow, training_flow
from flows.outcome import Block, BlockOutcome, Start
from flows.rollout import sample_groups
from flows.step import train_step
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
