"""SAPO: a soft gate in place of the clip, on the one provider that has the loss (arXiv 2511.20347)."""

# No `from __future__ import annotations` in a flow's file: a runner loads it under a name that is not importable, and
# Prefect could not find what the string "SapoConfig" means.
from functools import partial
from typing import Any

from algorithms import sapo as maths
from flows.attempt import Attempt
from flows.config import SapoConfig
from flows.cycles import Cycles
from flows.lifecycle import block_flow, training_flow
from flows.outcome import Block, BlockOutcome, Start
from flows.rollout import sample_groups
from flows.step import train_step
from flows.training import train


@training_flow("sapo")
async def sapo(config: SapoConfig) -> dict[str, Any]:
    """Train an adapter by SAPO; returns the run's summary.

    Blocks, Retry and errors: `flows.training.train`.
    """
    return await train("sapo", config, sapo_cycles)


@block_flow("sapo-cycles")
async def sapo_cycles(attempt: Attempt, block: Block, config: SapoConfig, start: Start) -> BlockOutcome:
    """A block of cycles, from `start` to a saved state."""
    cycles = await Cycles.begin(attempt, block, start)
    estimate = partial(maths.advantages, std=config.std, eps=config.eps)
    terms = config.loss_terms()
    for cycle in cycles:
        rollouts = await sample_groups(cycle, config)
        batch = rollouts.batch(estimate)
        await train_step(cycle, batch.data, maths.LOSS_FUNCTION, terms.loss_config)
    return cycles.outcome()
