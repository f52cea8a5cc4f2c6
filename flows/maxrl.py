"""MaxRL: beat the best of the others, or count success by how rare it is (arXiv 2602.02710)."""

# Annotations are read by Prefect, so they are no strings here: see flows/lifecycle.py.
from functools import partial
from typing import Any

from algorithms import maxrl as maths
from flows.config import MaxrlConfig
from flows.durable.attempt import Attempt
from flows.durable.cycles import Cycles
from flows.durable.outcome import Block, BlockOutcome, Start
from flows.lifecycle import block_flow, training_flow
from flows.parts.rollout import sample_groups
from flows.parts.step import train_step
from flows.training import train


@training_flow("maxrl")
async def maxrl(config: MaxrlConfig) -> dict[str, Any]:
    """Train an adapter by MaxRL; returns the run's summary.

    Blocks, Retry and errors: `flows.training.train`.
    """
    return await train("maxrl", config, maxrl_cycles)


@block_flow("maxrl-cycles")
async def maxrl_cycles(attempt: Attempt, block: Block, config: MaxrlConfig, start: Start) -> BlockOutcome:
    """A block of cycles, from `start` to a saved state."""
    cycles = await Cycles.begin(attempt, block, start)
    estimate = partial(maths.advantages, estimator=config.estimator)
    for cycle in cycles:
        rollouts = await sample_groups(cycle, config)
        batch = rollouts.batch(estimate)
        await train_step(cycle, batch.data, maths.LOSS_FUNCTION)
    return cycles.outcome()
