"""What every training flow does around its own loop: measure, train block by block, measure, export."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from prefect.exceptions import CancelledRun
from prefect.logging import get_run_logger

from flows.config import FlowConfig
from flows.durable.attempt import Attempt
from flows.durable.begin import begin_attempt
from flows.durable.budget.stop import end_without_export, revoke_earlier_export, stop_at_last_block
from flows.durable.finish import finish
from flows.durable.lineage import require_taken_at
from flows.durable.outcome import Block, BlockOutcome, Start
from flows.durable.stopping import stop_reason
from flows.durable.termination import sigterm_is_heard
from flows.evaluate import Measure, evaluate
from flows.export import export
from tasks.reward_range import reward_range

C = TypeVar("C", bound=FlowConfig)


async def train(
    algorithm: str,
    config: C,
    train_block: Callable[[Attempt, Block, C, Start], Awaitable[BlockOutcome]],
    *,
    measure: Measure | None = None,
) -> dict[str, Any]:
    """Run an algorithm's blocks from the first to the last; the run's summary.

    Every block of `save_every` cycles is a persisted subflow: a Retry adopts the finished ones and goes on at the one
    that failed, from the state the last finished one saved. So are the measurements: before, after every
    `evaluation.every` cycles, and after the last block, whichever that is. `measure` is what the algorithm wants to
    know of the held-out examples beside their accuracy.

    Where the budget ends, so does training: what is exported is the last saved block.

    Raises:
        ValueError: the configuration cannot run here; nothing has been allocated.
        NoAdapterError: the budget has ended the first block, or leaves no export; the flow run is Failed, with how to
            go on.
        WhitneyError: an operation failed or Whitney cannot be reached; runs are cancelled, the session is closed.
    """
    with sigterm_is_heard():
        async with await begin_attempt(algorithm, config) as attempt:
            try:
                start = await _train_blocks(attempt, config, train_block, measure)
            except CancelledRun as ended:
                start = await stop_at_last_block(attempt, ended)
            await revoke_earlier_export(start)
            try:
                adapter = await export(attempt, start)
            except CancelledRun as ended:
                await end_without_export(attempt, ended)
            require_taken_at(start, adapter)
            return await finish(attempt, adapter)


async def _train_blocks(
    attempt: Attempt,
    config: C,
    train_block: Callable[[Attempt, Block, C, Start], Awaitable[BlockOutcome]],
    measure: Measure | None,
) -> Start:
    """Measure and train until the last block, or the one that a stop rule is met after; where the run then stands."""
    start = Start()
    stops = partial(
        stop_reason,
        config.stop,
        reward_range=reward_range(config.reward_terms()),
        prices=config.stop.prices(config.budget.prices),
    )
    await attempt.adopt_measurement(start, await evaluate(attempt, "before", start, measure))
    for block in attempt.blocks():
        outcome = await attempt.adopt(block, await train_block(attempt, block, config, start))
        start = outcome.end
        attempt.stopped = stops(attempt.rows)
        if attempt.stopped:
            get_run_logger().warning("stopped after cycle %d: %s", outcome.cycle + 1, attempt.stopped)
            break
        if config.evaluation.is_due(trained := outcome.cycle + 1, config.cycles):
            between = await evaluate(attempt, f"cycle-{trained}", start, measure)
            await attempt.adopt_measurement(start, between)
    await attempt.adopt_measurement(start, await evaluate(attempt, "after", start, measure))
    return start
