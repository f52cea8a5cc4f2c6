"""GRPO: draw a group per prompt, reward it, push towards what was better than the group's mean (arXiv 2402.03300)."""

# No `from __future__ import annotations` in a flow's file: a runner loads it under a name that is not importable, and
# Prefect could not find what the string "GrpoConfig" means.
from typing import Any

from algorithms import grpo as maths
from algorithms import scale_data
from flows.attempt import Attempt
from flows.config import GrpoConfig
from flows.evaluate import evaluate
from flows.export import export
from flows.lifecycle import block_flow, training_flow
from flows.outcome import Block, BlockOutcome
from flows.rollout import sample_groups
from flows.step import BlockRecorder, train_step


@training_flow("grpo")
async def grpo(config: GrpoConfig) -> dict[str, Any]:
    """Train an adapter by GRPO; returns the run's summary.

    Every block of `save_every` cycles is a persisted subflow: a Retry adopts the finished ones and goes on at the one
    that failed, from the state the last finished one saved.

    Raises:
        ValueError: the configuration cannot run here; nothing has been allocated.
        WhitneyError: an operation failed or Whitney cannot be reached; runs are cancelled, the session is closed.
    """
    async with await Attempt.begin("grpo", config) as attempt:
        before = await evaluate(attempt, "before", None)
        state_id = None
        for block in attempt.blocks():
            outcome = await attempt.adopt(block, await grpo_cycles(attempt, block, config, state_id))
            state_id = outcome.state_id
        after = await evaluate(attempt, "after", state_id)
        adapter = await export(attempt, state_id)
        return await attempt.finish(before, after, adapter)


@block_flow("grpo-cycles")
async def grpo_cycles(attempt: Attempt, block: Block, config: GrpoConfig, state_id: str | None) -> BlockOutcome:
    """A block of cycles, starting from `state_id` and ending in a saved state."""
    policy = await attempt.policy(state_id)
    recorder = BlockRecorder(attempt, policy, block)
    for cycle in block.numbers:
        rollouts = await sample_groups(attempt, policy, config, cycle)
        built = [maths.group_data(group.prompt_tokens, group.sequences, group.rewards) for group in rollouts.groups]
        data = scale_data(
            [datum for one in built for datum in one.data],
            config.aggregation,
            constant_length=config.sampling.max_tokens,
        )
        trained = await train_step(
            attempt, policy, cycle, data, loss_function=maths.LOSS_FUNCTION, save=recorder.ends_at(cycle)
        )
        attempt.folder.write_samples(cycle, [row for group in rollouts.groups for row in group.sample_rows()])
        recorder.record(cycle, rollouts.row(built), trained)
    return recorder.outcome()
