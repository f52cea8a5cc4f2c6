"""Your own algorithm: a `build_loss` of the cookbook's contract, in a loop that is durable, ordered and visible."""

# Annotations are read by Prefect, so they are no strings here: see flows/lifecycle.py.
from typing import Any

from flows.config import CustomConfig
from flows.config.user_function import load_build_loss
from flows.durable.attempt import Attempt
from flows.durable.cycles import Cycles
from flows.durable.outcome import Block, BlockOutcome, Start
from flows.lifecycle import block_flow, training_flow
from flows.parts.build_loss import build_payload
from flows.parts.rollout import scored_groups
from flows.parts.step import train_step
from flows.teacher import open_teacher
from flows.training import train


@training_flow("custom")
async def custom(config: CustomConfig) -> dict[str, Any]:
    """Train an adapter by your own `build_loss`; returns the run's summary.

    Blocks, Retry and errors: `flows.training.train`.
    """
    return await train("custom", config, custom_cycles)


@block_flow("custom-cycles")
async def custom_cycles(attempt: Attempt, block: Block, config: CustomConfig, start: Start) -> BlockOutcome:
    """A block of cycles, from `start` to a saved state."""
    cycles = await Cycles.begin(attempt, block, start)
    build_loss = load_build_loss(config.build_loss)
    teacher = await open_teacher(attempt, config.teacher) if config.teacher else None
    for cycle in cycles:
        groups = await scored_groups(cycle, config)
        # Called once a group; whatever it asks of ctx.client is an operation like any other.
        payload = await build_payload(cycle, config, build_loss, groups, teacher)
        await train_step(cycle, payload.data, config.loss_function, payload.loss_config)
    return cycles.outcome()
