"""GSPO: PPO's objective with one ratio for the whole sequence (arXiv 2507.18071)."""

# No `from __future__ import annotations` in a flow's file: a runner loads it under a name that is not importable, and
# Prefect could not find what the string "GspoConfig" means.
from functools import partial
from typing import Any

from algorithms import gspo as maths
from flows.attempt import Attempt
from flows.config import GspoConfig
from flows.cycles import Cycles
from flows.lifecycle import block_flow, training_flow
from flows.outcome import Block, BlockOutcome, Start
from flows.rollout import sample_groups
from flows.step import train_step
from flows.training import train


@training_flow("gspo")
async def gspo(config: GspoConfig) -> dict[str, Any]:
    """Train an adapter by GSPO; returns the run's summary.

    Blocks, Retry and errors: `flows.training.train`.
    """
    return await train("gspo", config, gspo_cycles)


@block_flow("gspo-cycles")
async def gspo_cycles(attempt: Attempt, block: Block, config: GspoConfig, start: Start) -> BlockOutcome:
    """A block of cycles, from `start` to a saved state."""
    cycles = await Cycles.begin(attempt, block, start)
    estimate = partial(maths.advantages, std=config.std, eps=config.eps)
    terms = config.loss_terms()
    for cycle in cycles:
        rollouts = await sample_groups(cycle, config)
        batch = rollouts.batch(estimate, terms=terms)
        await train_step(cycle, batch.data, maths.LOSS_FUNCTION, terms.loss_config)
    return cycles.outcome()
