"""SFT: raise the likelihood of given answers, token by token (cross_entropy on completions)."""

# Annotations are read by Prefect, so they are no strings here: see flows/lifecycle.py.
from typing import Any

from algorithms import scale_data
from algorithms import sft as maths
from flows.config import SftConfig
from flows.durable.attempt import Attempt
from flows.durable.cycles import Cycles
from flows.durable.outcome import Block, BlockOutcome, Start
from flows.evaluate import heldout_loss
from flows.lifecycle import block_flow, training_flow
from flows.parts.step import train_step
from flows.training import train


@training_flow("sft")
async def sft(config: SftConfig) -> dict[str, Any]:
    """Train an adapter by supervised fine-tuning; returns the run's summary.

    Blocks, Retry and errors: `flows.training.train`.
    """
    return await train("sft", config, sft_cycles, measure=heldout_loss)


@block_flow("sft-cycles")
async def sft_cycles(attempt: Attempt, block: Block, config: SftConfig, start: Start) -> BlockOutcome:
    """A block of cycles, from `start` to a saved state."""
    cycles = await Cycles.begin(attempt, block, start)
    context = attempt.inputs.context_tokens
    for cycle in cycles:
        pairs = attempt.inputs.pairs(attempt.inputs.batch(cycle.number, config.batch_size))
        batch = maths.sft_data(pairs, max_sequence_tokens=context)
        cycle.count_dropped(batch.dropped_by_reason)
        data = scale_data(batch.data, config.aggregation, field="weights", constant_length=context)
        await train_step(cycle, data, maths.LOSS_FUNCTION)
    return cycles.outcome()
