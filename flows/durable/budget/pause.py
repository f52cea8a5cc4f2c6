"""A person is asked for more budget, with nothing held: no session, no slot.

A run of a deployment is suspended: Resume starts a process, which begins by reading the answer. Any other waits within
the block that was stopped, which then begins anew (`flows.begun_anew`).
"""

from __future__ import annotations

import asyncio
from math import isclose
from typing import TYPE_CHECKING

from flows.config import BudgetConfig
from flows.config.budget import KINDS
from flows.durable.budget.account import Account
from flows.durable.budget.labels import Asked, asked, note_asked, note_raised, raised
from flows.durable.budget.open import WHOLE
from flows.durable.budget.question import ask_for_more, keep_answer, question_about
from flows.durable.budget.rest import Rest, rest_of
from flows.durable.children import reopen_child
from flows.early_end import BudgetReachedError

if TYPE_CHECKING:
    from flows.durable.attempt import Attempt


async def ask_here(attempt: Attempt, ended: Exception) -> None:
    """Come back where a person who is asked here and now lets what has `ended` begin anew.

    Raises:
        BudgetReachedError: they do not, or nobody is to be asked, or not here.
        Exception: `ended` itself, where it was not the budget's doing.
    """
    reached = attempt.budget.reached
    if reached is None:
        raise ended
    if not attempt.suspends and attempt.budget.pauses:
        await attempt.scope.start_over()
        if await _settle(attempt, reached):
            return
    raise reached from ended


async def suspend(attempt: Attempt) -> None:
    """Ask for more where the run is a deployment's own: it ends here, and Resume begins at the block that was stopped.

    Raises:
        Pause: Prefect's own.
    """
    reached = attempt.budget.reached
    if reached is None or not attempt.suspends or not attempt.budget.pauses:
        return
    await attempt.scope.start_over()
    question = await _question(attempt, reached)
    await note_asked(attempt.scope.flow_run_id, question)
    await reopen_child(attempt.scope.flow_run_id, str(reached))
    attempt.stopwatch.note()
    await ask_for_more(question)


async def read_answer(flow_run_id: str, config: BudgetConfig) -> bool:
    """What was said to the question that a run was suspended with, before anything is begun; False: a no.

    Whoever has set another limit meanwhile, or that nobody is to be asked, has answered it so.

    Raises:
        NotAnsweredError, Pause: as `flows.person.answer_of`; it is asked once more where a Retry did not wait.
    """
    question = await asked(flow_run_id)
    if question is None:
        return True
    configured = config.limits(KINDS)
    by = dict(await raised(flow_run_id, configured))
    in_force = configured.get(question.field, 0.0) + by.get(question.field, 0.0)
    more: float | None = 0.0
    if config.on_exceed == "pause" and isclose(in_force, question.limit):
        more = await ask_for_more(question)
        if more is not None:
            await note_raised(flow_run_id, question.field, configured[question.field], more)
    await note_asked(flow_run_id, None)
    return more is not None


async def _settle(attempt: Attempt, reached: BudgetReachedError) -> bool:
    question = await _question(attempt, reached)
    with attempt.stopwatch.stopped(), WHOLE.get().stopped():
        more = await ask_for_more(question)
    if more is None:
        attempt.budget.asks = False
        return False
    await keep_answer(attempt.budget.account_of(reached), reached.field, more)
    attempt.budget.reopen(more)
    return True


async def _question(attempt: Attempt, reached: BudgetReachedError) -> Asked:
    account = attempt.budget.account_of(reached)
    rest = await rest_for(attempt, account)
    return question_about(reached, account, rest, done=len(attempt.rows), of=f"{attempt.config.cycles} cycles")


async def rest_for(attempt: Attempt, account: Account) -> Rest:
    """What is still to come; of a pipeline's account the later stages, too."""
    whole_run, usages = WHOLE.get(), [one.usage for one in attempt.evaluations]
    rest = await asyncio.to_thread(rest_of, attempt.inputs, attempt.rows, usages)
    if account in whole_run.accounts:
        rest = rest.then(await asyncio.to_thread(whole_run.later))
    return rest
