"""DPO: raise the chosen answer over the rejected one, held by the initial weights (arXiv 2305.18290)."""

# Annotations are read by Prefect, so they are no strings here: see flows/lifecycle.py.
from typing import Any

from algorithms import dpo as maths
from flows.config import DpoConfig
from flows.durable.attempt import Attempt
from flows.durable.cycles import Cycles
from flows.durable.outcome import Block, BlockOutcome, Start
from flows.lifecycle import block_flow, training_flow
from flows.parts.preference import heldout_margin, pair_logprobs, pairs_of
from flows.parts.step import train_step
from flows.teacher import open_reference
from flows.training import train


@training_flow("dpo")
async def dpo(config: DpoConfig) -> dict[str, Any]:
    """Train an adapter on preference pairs; returns the run's summary.

    Blocks, Retry and errors: `flows.training.train`.
    """
    return await train("dpo", config, dpo_cycles, measure=heldout_margin)


@block_flow("dpo-cycles")
async def dpo_cycles(attempt: Attempt, block: Block, config: DpoConfig, start: Start) -> BlockOutcome:
    """A block of cycles, from `start` to a saved state."""
    cycles = await Cycles.begin(attempt, block, start)
    reference = await open_reference(attempt)
    for cycle in cycles:
        batch = pairs_of(attempt, attempt.inputs.batch(cycle.number, config.batch_size))
        cycle.count_dropped(batch.dropped_by_reason)
        if not batch.pairs:
            await train_step(cycle, [], maths.LOSS_FUNCTION)
            continue
        policy, frozen = await pair_logprobs(batch.pairs, cycle.policy, reference)
        step = maths.dpo_step(batch.pairs, policy, frozen, beta=config.beta, label_smoothing=config.label_smoothing)
        # Whatever C of the log-probs: cross_entropy with weights −dC/dlp has its gradient, where it is a plain sum.
        await train_step(cycle, step.data, maths.LOSS_FUNCTION)
        # The provider reports the loss of the weights that were sent, which means nothing.
        cycle.metrics |= step.metrics
    return cycles.outcome()
