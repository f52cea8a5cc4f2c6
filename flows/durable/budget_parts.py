"""A block or a measurement is begun only where the budget allows the whole of it: half of one would be paid in vain."""

from __future__ import annotations

from collections import Counter

from flows.checks.planned_parts import SAVE, SNAPSHOT, planned_block, planned_measurement
from flows.durable.attempt import Attempt
from flows.durable.outcome import Block
from flows.durable.session_scope import POLICY


async def begin_block(attempt: Attempt, block: Block) -> None:
    """Make sure that a block fits.

    Raises:
        BudgetReachedError: it does not.
    """
    await attempt.budget.look_again(attempt.client)
    needed = planned_block(attempt.inputs.algorithm, attempt.config, block.cycles)
    saves = needed.pop(SAVE)
    attempt.budget.begin(block.label, _still_to_take(attempt, needed, frozen=True), saves=saves)


def begin_measurement(attempt: Attempt) -> None:
    """Make sure that a measurement fits.

    Raises:
        BudgetReachedError: it does not.
    """
    needed = planned_measurement(attempt.inputs.algorithm, attempt.config, len(attempt.inputs.heldout))
    attempt.budget.begin("the measurement", _still_to_take(attempt, needed, frozen=False))


def _still_to_take(attempt: Attempt, needed: Counter[str], *, frozen: bool) -> Counter[str]:
    """Without the snapshots that are there: the policy's current one, and those of frozen runs."""
    there = sum(
        run.snapshot is not None and (frozen or name == POLICY)
        for name, run in attempt.scope.runs.items()
        if name != "critic"
    )
    return needed - Counter({SNAPSHOT: there})
