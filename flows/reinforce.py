"""REINFORCE with a baseline: the group's mean, or a moving average of what earlier cycles earned (Williams 1992)."""

# Annotations are read by Prefect, so they are no strings here: see flows/lifecycle.py.
from functools import partial
from typing import Any

from algorithms import reinforce as maths
from flows.config import ReinforceConfig
from flows.durable.attempt import Attempt
from flows.durable.cycles import Cycles
from flows.durable.outcome import Block, BlockOutcome, Start
from flows.lifecycle import block_flow, training_flow
from flows.parts.rollout import sample_groups
from flows.parts.step import train_step
from flows.training import train


@training_flow("reinforce")
async def reinforce(config: ReinforceConfig) -> dict[str, Any]:
    """Train an adapter by REINFORCE; returns the run's summary.

    Blocks, Retry and errors: `flows.training.train`.
    """
    return await train("reinforce", config, reinforce_cycles)


@block_flow("reinforce-cycles")
async def reinforce_cycles(attempt: Attempt, block: Block, config: ReinforceConfig, start: Start) -> BlockOutcome:
    """A block of cycles, from `start` to a saved state."""
    cycles = await Cycles.begin(attempt, block, start)
    for cycle in cycles:
        rollouts = await sample_groups(cycle, config)
        earned = [row.get("reward_mean") for row in cycles.history]
        estimate = partial(maths.advantages, baseline=config.baseline, earned=earned, decay=config.baseline_decay)
        batch = rollouts.batch(estimate)
        await train_step(cycle, batch.data, maths.LOSS_FUNCTION)
    return cycles.outcome()
