"""RLOO: each completion against the mean of the others; [kl] adds the reference (arXiv 2402.14740)."""

# No `from __future__ import annotations` in a flow's file: a runner loads it under a name that is not importable, and
# Prefect could not find what the string "RlooConfig" means.
from typing import Any

from algorithms import rloo as maths
from flows.attempt import Attempt
from flows.config import RlooConfig
from flows.cycles import Cycles
from flows.lifecycle import block_flow, training_flow
from flows.outcome import Block, BlockOutcome, Start
from flows.rollout import sample_groups
from flows.step import train_step
from flows.training import train


@training_flow("rloo")
async def rloo(config: RlooConfig) -> dict[str, Any]:
    """Train an adapter by RLOO; returns the run's summary.

    Blocks, Retry and errors: `flows.training.train`.
    """
    return await train("rloo", config, rloo_cycles)


@block_flow("rloo-cycles")
async def rloo_cycles(attempt: Attempt, block: Block, config: RlooConfig, start: Start) -> BlockOutcome:
    """A block of cycles, from `start` to a saved state."""
    cycles = await Cycles.begin(attempt, block, start)
    for cycle in cycles:
        rollouts = await sample_groups(cycle, config)
        batch = rollouts.batch(maths.advantages)
        await train_step(cycle, batch.data, maths.LOSS_FUNCTION)
    return cycles.outcome()
