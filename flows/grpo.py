"""GRPO: draw a group per prompt, reward it, push towards what beat the group's mean (arXiv 2402.03300)."""

# No `from __future__ import annotations` in a flow's file: a runner loads it under a name that is not importable, and
# Prefect could not find what the string "GrpoConfig" means.
from functools import partial
from typing import Any

from algorithms import grpo as maths
from flows.attempt import Attempt
from flows.config import GrpoConfig
from flows.cycles import Cycles
from flows.lifecycle import block_flow, training_flow
from flows.outcome import Block, BlockOutcome, Start
from flows.rollout import sample_groups
from flows.step import train_step
from flows.training import train


@training_flow("grpo")
async def grpo(config: GrpoConfig) -> dict[str, Any]:
    """Train an adapter by GRPO; returns the run's summary.

    Blocks, Retry and errors: `flows.training.train`.
    """
    return await train("grpo", config, grpo_cycles)


@block_flow("grpo-cycles")
async def grpo_cycles(attempt: Attempt, block: Block, config: GrpoConfig, start: Start) -> BlockOutcome:
    """A block of cycles, from `start` to a saved state."""
    cycles = await Cycles.begin(attempt, block, start)
    estimate = partial(maths.advantages, std=config.std, eps=config.eps)
    for cycle in cycles:
        rollouts = await sample_groups(cycle, config)
        batch = rollouts.batch(estimate)
        await train_step(cycle, batch.data, maths.LOSS_FUNCTION)
    return cycles.outcome()
