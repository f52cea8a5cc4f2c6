"""MaxRL: beat the best of the others, or count success by how rare it is (arXiv 2602.02710)."""

# No `from __future__ import annotations` in a flow's file: a runner loads it under a name that is not importable, and
# Prefect could not find what the string "MaxrlConfig" means.
from functools import partial
from typing import Any

from algorithms import maxrl as maths
from flows.attempt import Attempt
from flows.config import MaxrlConfig
from flows.cycles import Cycles
from flows.lifecycle import block_flow, training_flow
from flows.outcome import Block, BlockOutcome, Start
from flows.rollout import sample_groups
from flows.step import train_step
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
