"""Test-time training: one problem, its best attempts weighed and started from again (arXiv 2601.16175)."""

# Annotations are read by Prefect, so they are no strings here: see flows/lifecycle.py.
from functools import partial
from typing import Any

from algorithms import ttt as maths
from flows.config import TttConfig
from flows.durable.attempt import Attempt
from flows.durable.cycles import Cycles
from flows.durable.outcome import Block, BlockOutcome, Start
from flows.lifecycle import block_flow, training_flow
from flows.parts.discovery import attempts_from, load_buffer, remember, save_buffer
from flows.parts.step import train_step
from flows.training import train


@training_flow("ttt")
async def ttt(config: TttConfig) -> dict[str, Any]:
    """Train on one problem while solving it; returns the run's summary.

    Blocks, Retry and errors: `flows.training.train`.
    """
    return await train("ttt", config, ttt_cycles)


@block_flow("ttt-cycles")
async def ttt_cycles(attempt: Attempt, block: Block, config: TttConfig, start: Start) -> BlockOutcome:
    """A block of cycles, from `start` to a saved state."""
    cycles = await Cycles.begin(attempt, block, start)
    buffer = load_buffer(attempt, config, start)
    estimate = partial(maths.advantages, beta=config.beta)
    for cycle in cycles:
        states = buffer.select(config.groups_per_cycle, group_size=config.group_size, c=config.puct_c)
        rollouts, parents = await attempts_from(cycle, config, states)
        batch = rollouts.batch(estimate)
        await train_step(cycle, batch.data, maths.LOSS_FUNCTION)
        remember(cycle, buffer, parents, rollouts.groups)
    cycles.carry = save_buffer(attempt, buffer, block)
    return cycles.outcome()
