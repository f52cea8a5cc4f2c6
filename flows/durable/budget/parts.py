"""A block or a measurement is begun only where the budget allows the whole of it: half of one would be paid in vain."""

from __future__ import annotations

import asyncio
from collections import Counter
from math import floor

from flows.counts.fitting import sent_in
from flows.counts.ledger_tokens import Tokens
from flows.counts.operations import SNAPSHOT
from flows.counts.part_tokens import block_tokens, measurement_tokens
from flows.counts.parts import SAVE, planned_block, planned_measurement
from flows.durable.attempt import Attempt
from flows.durable.budget.rest import mean, tokens_of
from flows.durable.outcome import Block
from flows.durable.session_scope import POLICY
from whitney.types import Usage


async def begin_block(attempt: Attempt, block: Block) -> None:
    """Make sure that a block fits.

    Tokens, time and money are those of the block before it, as far as no plan knows them.

    Raises:
        BudgetReachedError: it does not.
    """
    await attempt.budget.look_again(attempt.client)
    sent = await asyncio.to_thread(sent_in, attempt.inputs, block.numbers, measured=False)
    needed = planned_block(attempt.inputs.algorithm, attempt.config, block.cycles, sent)
    saves = needed.pop(SAVE)
    operations = _still_to_take(attempt, needed, frozen=True)
    if not attempt.budget.counts_more_than_operations:
        attempt.budget.begin(block.label, operations, saves=saves)
        return
    rows = attempt.chain[-1].rows if attempt.chain else []
    before = tokens_of(rows) if rows else None
    tokens = await asyncio.to_thread(block_tokens, attempt.inputs, block.numbers, before=before)
    seconds = block.cycles * mean(rows, "seconds/cycle")
    attempt.budget.begin(block.label, operations, tokens=list(map(as_usage, tokens)), seconds=seconds, saves=saves)


async def begin_measurement(attempt: Attempt) -> None:
    """Make sure that a measurement fits.

    Raises:
        BudgetReachedError: it does not.
    """
    sent = await asyncio.to_thread(sent_in, attempt.inputs, range(0), measured=False)
    needed = planned_measurement(attempt.config, sent.heldout)
    operations = _still_to_take(attempt, needed, frozen=False)
    if not attempt.budget.counts_more_than_operations:
        attempt.budget.begin("the measurement", operations)
        return
    tokens = await asyncio.to_thread(measurement_tokens, attempt.inputs)
    attempt.budget.begin("the measurement", operations, tokens=list(map(as_usage, tokens)))


def as_usage(tokens: Tokens) -> Usage:
    """As a budget counts them. Down to whole ones: nothing is refused that may just fit."""
    return Usage(
        prefill_tokens=floor(tokens.prefill), sampled_tokens=floor(tokens.sampled), trained_tokens=floor(tokens.trained)
    )


def _still_to_take(attempt: Attempt, needed: Counter[str], *, frozen: bool) -> Counter[str]:
    """Without the snapshots that are there: the policy's current one, and those of frozen runs."""
    there = sum(
        run.snapshot is not None and (frozen or name == POLICY)
        for name, run in attempt.scope.runs.items()
        if name != "critic"
    )
    return needed - Counter({SNAPSHOT: there})
