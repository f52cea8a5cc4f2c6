"""CISPO: the clipped ratio is a coefficient, so that no token loses its gradient (arXiv 2506.13585)."""

# Annotations are read by Prefect, so they are no strings here: see flows/lifecycle.py.
from functools import partial
from typing import Any

from algorithms import cispo as maths
from flows.config import CispoConfig
from flows.durable.attempt import Attempt
from flows.durable.cycles import Cycles
from flows.durable.outcome import Block, BlockOutcome, Start
from flows.lifecycle import block_flow, training_flow
from flows.parts.rollout import sample_groups
from flows.parts.step import train_step
from flows.training import train


@training_flow("cispo")
async def cispo(config: CispoConfig) -> dict[str, Any]:
    """Train an adapter by CISPO; returns the run's summary.

    Blocks, Retry and errors: `flows.training.train`.
    """
    return await train("cispo", config, cispo_cycles)


@block_flow("cispo-cycles")
async def cispo_cycles(attempt: Attempt, block: Block, config: CispoConfig, start: Start) -> BlockOutcome:
    """A block of cycles, from `start` to a saved state."""
    cycles = await Cycles.begin(attempt, block, start)
    estimate = partial(maths.advantages, std=config.std, eps=config.eps)
    terms = config.loss_terms()
    for cycle in cycles:
        rollouts = await sample_groups(cycle, config)
        batch = rollouts.batch(estimate, terms=terms)
        await train_step(cycle, batch.data, maths.LOSS_FUNCTION, terms.loss_config)
    return cycles.outcome()
