"""A person is asked for more budget, with nothing held: no session, no slot.

A run of a deployment is suspended: Resume starts a process, which begins by reading the answer. Any other waits within
the block that was stopped, which then begins anew (`flows.begun_anew`).
"""

from __future__ import annotations

import asyncio
from math import isclose
from typing import TYPE_CHECKING

from pydantic import Field

from flows.amounts import whole
from flows.config import BudgetConfig
from flows.config.budget import KINDS
from flows.durable.budget.account import Account
from flows.durable.budget.labels import Asked, asked, note_asked, note_raised, raised
from flows.durable.budget.open import ALONE, WHOLE
from flows.durable.budget.rest import Rest, enough_more, rest_of
from flows.durable.children import reopen_child
from flows.early_end import BudgetReachedError, DeclinedError
from flows.person import Decision, answer_of
from tasks.report import artifact_key

if TYPE_CHECKING:
    from flows.durable.attempt import Attempt


class MoreBudget(Decision):
    """The form. Whoever submits it as it is lets the run come to its end, as far as that can be told."""

    go_on: bool = Field(True, description="Switch it off to decline: the run ends with its last saved block.")
    more: float = Field(0.0, ge=0, le=1e15, description="By how much the limit is raised, 0 or more; 0 lifts it.")


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
    with attempt.stopwatch.stopped(), WHOLE.get(ALONE).stopped():
        more = await ask_for_more(question)
    if more is None:
        attempt.budget.asks = False
        return False
    await keep_answer(attempt.budget.account_of(reached), reached.field, more)
    attempt.budget.reopen(more)
    return True


async def ask_for_more(question: Asked) -> float | None:
    """By how much a limit may be raised, 0 where it is lifted; None after a no."""
    key = artifact_key(f"{question.path} {question.limit:.16g}")  # small letters, digits and dashes, as Prefect wants
    why = f"{question.path} is reached"
    try:
        said = await answer_of(
            key, question.text, MoreBudget, why=why, timeout_s=question.timeout_s, more=question.more
        )
    except DeclinedError:
        return None
    return said.more if KINDS[question.field] in ("cost", "minutes") else whole(said.more)


async def keep_answer(account: Account, field: str, more: float) -> None:
    """Put a yes where the next attempt finds it."""
    await note_raised(account.owner, field, account.config.limits([field])[field], more)


async def _question(attempt: Attempt, reached: BudgetReachedError) -> Asked:
    account = attempt.budget.account_of(reached)
    rest = await rest_for(attempt, account)
    return question_about(reached, account, rest, f"{len(attempt.rows)} of {attempt.config.cycles} cycles")


async def rest_for(attempt: Attempt, account: Account) -> Rest:
    """What is still to come; of a pipeline's account the later stages, too."""
    whole_run, usages = WHOLE.get(ALONE), [one.usage for one in attempt.evaluations]
    rest = await asyncio.to_thread(rest_of, attempt.inputs, attempt.rows, usages)
    if account in whole_run.accounts:
        rest = rest.then(await asyncio.to_thread(whole_run.later))
    return rest


def question_about(reached: BudgetReachedError, account: Account, rest: Rest, done: str) -> Asked:
    """What a person has to know: how far the run is, and what its rest needs, as far as that can be told.

    Args:
        reached: the limit.
        account: which it is of.
        rest: what is still to come.
        done: of how many cycles, or stages, are trained.
    """
    more, limit = enough_more(reached, account, rest), account.limits[reached.field]
    saved = "nothing is saved yet" if done.startswith("0 ") else f"{done} are trained and saved"
    text = (
        f"**{reached.path} is reached.** No session is open, nothing is billed while you think.\n\n- {reached}\n"
        f"- {saved}\n- about {reached.told(more)} more than {reached.told(limit)} would bring it to its end, as far as "
        "that can be told: `more` below\n"
    )
    return Asked(reached.path, limit, float(more), account.config.timeout_s, text)
