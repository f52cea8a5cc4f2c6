"""DRO: log-likelihood times a soft advantage, held by a quadratic penalty (arXiv 2405.19107)."""

# Annotations are read by Prefect, so they are no strings here: see flows/lifecycle.py.
from typing import Any

from algorithms import dro as maths
from flows.config import DroConfig
from flows.durable.attempt import Attempt
from flows.durable.cycles import Cycles
from flows.durable.outcome import Block, BlockOutcome, Start
from flows.lifecycle import block_flow, training_flow
from flows.parts.rollout import sample_groups
from flows.parts.step import train_step
from flows.training import train


@training_flow("dro")
async def dro(config: DroConfig) -> dict[str, Any]:
    """Train an adapter by DRO; returns the run's summary.

    Blocks, Retry and errors: `flows.training.train`.
    """
    return await train("dro", config, dro_cycles)


@block_flow("dro-cycles")
async def dro_cycles(attempt: Attempt, block: Block, config: DroConfig, start: Start) -> BlockOutcome:
    """A block of cycles, from `start` to a saved state."""
    cycles = await Cycles.begin(attempt, block, start)
    terms = config.loss_terms()
    for cycle in cycles:
        rollouts = await sample_groups(cycle, config)
        # The penalty knows no advantage, so a mean is made by scaling the weights of both terms.
        batch = rollouts.batch(maths.advantages, scale="weights")
        await train_step(cycle, batch.data, maths.LOSS_FUNCTION, terms.loss_config)
    return cycles.outcome()
