"""Dr. GRPO: centred advantages, an explicit length normalizer, no KL term (arXiv 2503.20783)."""

# Annotations are read by Prefect, so they are no strings here: see flows/lifecycle.py.
from functools import partial
from typing import Any

from algorithms import drgrpo as maths
from flows.config import DrGrpoConfig
from flows.durable.attempt import Attempt
from flows.durable.cycles import Cycles
from flows.durable.outcome import Block, BlockOutcome, Start
from flows.lifecycle import block_flow, training_flow
from flows.parts.rollout import sample_groups
from flows.parts.step import train_step
from flows.training import train


@training_flow("drgrpo")
async def drgrpo(config: DrGrpoConfig) -> dict[str, Any]:
    """Train an adapter by Dr. GRPO; returns the run's summary.

    Blocks, Retry and errors: `flows.training.train`.
    """
    return await train("drgrpo", config, drgrpo_cycles)


@block_flow("drgrpo-cycles")
async def drgrpo_cycles(attempt: Attempt, block: Block, config: DrGrpoConfig, start: Start) -> BlockOutcome:
    """A block of cycles, from `start` to a saved state."""
    cycles = await Cycles.begin(attempt, block, start)
    estimate = partial(maths.advantages, normalizer=config.normalizer, max_tokens=config.sampling.max_tokens)
    for cycle in cycles:
        rollouts = await sample_groups(cycle, config)
        batch = rollouts.batch(estimate)
        await train_step(cycle, batch.data, maths.LOSS_FUNCTION)
    return cycles.outcome()
