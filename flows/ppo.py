"""PPO without a critic: GRPO's advantage under PPO's clipped objective (arXiv 1707.06347)."""

# Annotations are read by Prefect, so they are no strings here: see flows/lifecycle.py.
from functools import partial
from typing import Any

from algorithms import ppo as maths
from flows.config import PpoConfig
from flows.durable.attempt import Attempt
from flows.durable.cycles import Cycles
from flows.durable.outcome import Block, BlockOutcome, Start
from flows.lifecycle import block_flow, training_flow
from flows.parts.rollout import sample_groups
from flows.parts.step import train_step
from flows.training import train


@training_flow("ppo")
async def ppo(config: PpoConfig) -> dict[str, Any]:
    """Train an adapter by PPO's clipped objective; returns the run's summary.

    Blocks, Retry and errors: `flows.training.train`.
    """
    return await train("ppo", config, ppo_cycles)


@block_flow("ppo-cycles")
async def ppo_cycles(attempt: Attempt, block: Block, config: PpoConfig, start: Start) -> BlockOutcome:
    """A block of cycles, from `start` to a saved state."""
    cycles = await Cycles.begin(attempt, block, start)
    estimate = partial(maths.advantages, std=config.std, eps=config.eps)
    terms = config.loss_terms()
    for cycle in cycles:
        rollouts = await sample_groups(cycle, config)
        batch = rollouts.batch(estimate, terms=terms)
        await train_step(cycle, batch.data, maths.LOSS_FUNCTION, terms.loss_config)
    return cycles.outcome()
