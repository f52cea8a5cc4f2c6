"""RLOO: each completion against the mean of the others; [kl] adds the reference (arXiv 2402.14740)."""

# Annotations are read by Prefect, so they are no strings here: see flows/lifecycle.py.
from typing import Any

from algorithms import rloo as maths
from flows.config import RlooConfig
from flows.durable.attempt import Attempt
from flows.durable.cycles import Cycles
from flows.durable.outcome import Block, BlockOutcome, Start
from flows.lifecycle import block_flow, training_flow
from flows.parts.rollout import sample_groups
from flows.parts.step import train_step
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
