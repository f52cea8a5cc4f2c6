"""What a run's budget has come to, for its summary."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flows.durable.attempt import Attempt
from flows.durable.budget.open import WHOLE
from flows.durable.budget.pause import rest_for
from flows.durable.budget.rest import enough
from flows.early_end import BudgetReachedError


async def budget_told(attempt: Attempt) -> dict[str, Any] | None:
    """For the summary: what is used of each limit, which has stopped the run, what it left out; None without any.

    `go_on_with` is the higher limit that would bring a stopped run to its end, as far as that can be told.
    """
    told, reached = attempt.budget.told(), attempt.budget.reached
    if told is None or reached is None:
        return told and {**told, "left_out": []}
    return {**told, "left_out": list(_left_out(attempt)), "go_on_with": await _go_on_with(attempt, reached)}


async def _go_on_with(attempt: Attempt, reached: BudgetReachedError) -> float | None:
    """None of a stage that a limit of its own has stopped: it is finished."""
    account = attempt.budget.account_of(reached)
    is_stage = attempt.scope.root_id != attempt.scope.flow_run_id
    if is_stage and account not in WHOLE.get().accounts:
        return None
    return enough(reached, account, await rest_for(attempt, account))


def _left_out(attempt: Attempt) -> Iterator[str]:
    config, trained = attempt.config, len(attempt.rows)
    if trained < config.cycles:
        yield f"cycle {config.cycles}" if trained + 1 == config.cycles else f"cycles {trained + 1} to {config.cycles}"
    if config.evaluation.enabled and attempt.inputs.heldout:
        yield "the measurement after"
