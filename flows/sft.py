"""SFT: raise the likelihood of given answers, token by token (cross_entropy on completions)."""

# No `from __future__ import annotations` in a flow's file: a runner loads it under a name that is not importable, and
# Prefect could not find what the string "SftConfig" means.
from typing import Any

from algorithms import scale_data
from algorithms import sft as maths
from flows.attempt import Attempt
from flows.config import SftConfig
from flows.evaluate import evaluate
from flows.export import export
from flows.lifecycle import block_flow, training_flow
from flows.outcome import Block, BlockOutcome
from flows.step import BlockRecorder, train_step


@training_flow("sft")
async def sft(config: SftConfig) -> dict[str, Any]:
    """Train an adapter by supervised fine-tuning; returns the run's summary.

    Blocks, Retry and errors as in `flows.grpo`.
    """
    async with await Attempt.begin("sft", config) as attempt:
        before = await evaluate(attempt, "before", None, with_loss=True)
        state_id = None
        for block in attempt.blocks():
            outcome = await attempt.adopt(block, await sft_cycles(attempt, block, config, state_id))
            state_id = outcome.state_id
        after = await evaluate(attempt, "after", state_id, with_loss=True)
        adapter = await export(attempt, state_id)
        return await attempt.finish(before, after, adapter)


@block_flow("sft-cycles")
async def sft_cycles(attempt: Attempt, block: Block, config: SftConfig, state_id: str | None) -> BlockOutcome:
    """A block of cycles, starting from `state_id` and ending in a saved state."""
    policy = await attempt.policy(state_id)
    recorder = BlockRecorder(attempt, policy, block)
    for cycle in block.numbers:
        pairs = attempt.inputs.pairs(attempt.inputs.batch(cycle, config.batch_size))
        batch = maths.sft_data(pairs, max_sequence_tokens=attempt.inputs.context_tokens)
        data = scale_data(
            batch.data, config.aggregation, field="weights", constant_length=attempt.inputs.context_tokens
        )
        trained = await train_step(
            attempt, policy, cycle, data, loss_function=maths.LOSS_FUNCTION, save=recorder.ends_at(cycle)
        )
        dropped = {f"dropped/{reason}": float(count) for reason, count in batch.dropped_by_reason.items()}
        recorder.record(cycle, dropped, trained)
    return recorder.outcome()
