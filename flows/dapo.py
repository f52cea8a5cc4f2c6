"""DAPO: decoupled clip bounds, and groups drawn again until they have something to teach (arXiv 2503.14476)."""

# Annotations are read by Prefect, so they are no strings here: see flows/lifecycle.py.
from functools import partial
from typing import Any

from algorithms import dapo as maths
from flows.config import DapoConfig
from flows.durable.attempt import Attempt
from flows.durable.cycles import Cycles
from flows.durable.outcome import Block, BlockOutcome, Start
from flows.lifecycle import block_flow, training_flow
from flows.parts.step import train_step
from flows.resample import resample_groups
from flows.training import train


@training_flow("dapo")
async def dapo(config: DapoConfig) -> dict[str, Any]:
    """Train an adapter by DAPO; returns the run's summary.

    Blocks, Retry and errors: `flows.training.train`.
    """
    return await train("dapo", config, dapo_cycles)


@block_flow("dapo-cycles")
async def dapo_cycles(attempt: Attempt, block: Block, config: DapoConfig, start: Start) -> BlockOutcome:
    """A block of cycles, from `start` to a saved state."""
    cycles = await Cycles.begin(attempt, block, start)
    estimate = partial(maths.advantages, std=config.std, eps=config.eps)
    terms = config.loss_terms()
    for cycle in cycles:
        # Where the rounds are used up no group comes back: the cycle is skipped, on the record, and the run goes on.
        rollouts = await resample_groups(cycle, config, cycles.history)
        batch = rollouts.batch(estimate, terms=terms)
        await train_step(cycle, batch.data, maths.LOSS_FUNCTION, terms.loss_config)
    return cycles.outcome()
