"""Length-normalized GRPO: a completion's advantage is shared out over its own tokens."""

# Annotations are read by Prefect, so they are no strings here: see flows/lifecycle.py.
from functools import partial
from typing import Any

from algorithms import grpo_len_norm as maths
from flows.config import GrpoLenNormConfig
from flows.durable.attempt import Attempt
from flows.durable.cycles import Cycles
from flows.durable.outcome import Block, BlockOutcome, Start
from flows.lifecycle import block_flow, training_flow
from flows.parts.rollout import sample_groups
from flows.parts.step import train_step
from flows.training import train


@training_flow("grpo_len_norm")
async def grpo_len_norm(config: GrpoLenNormConfig) -> dict[str, Any]:
    """Train an adapter by GRPO with advantages divided by the completion's length; returns the run's summary.

    Blocks, Retry and errors: `flows.training.train`.
    """
    return await train("grpo_len_norm", config, grpo_len_norm_cycles)


@block_flow("grpo_len_norm-cycles")
async def grpo_len_norm_cycles(attempt: Attempt, block: Block, config: GrpoLenNormConfig, start: Start) -> BlockOutcome:
    """A block of cycles, from `start` to a saved state."""
    cycles = await Cycles.begin(attempt, block, start)
    estimate = partial(maths.advantages, std=config.std, eps=config.eps)
    for cycle in cycles:
        rollouts = await sample_groups(cycle, config)
        batch = rollouts.batch(estimate)
        await train_step(cycle, batch.data, maths.LOSS_FUNCTION)
    return cycles.outcome()
