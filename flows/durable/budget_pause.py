"""A person is asked for more budget, with nothing held: no session, no slot.

A run of a deployment is suspended: Resume starts a process, which begins by reading the answer. Any other waits within
the block that was stopped, which then begins anew (`flows.begun_anew`).
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from pydantic import Field

from flows.durable.account import Account
from flows.durable.budget_labels import Asked, asked, note_asked, note_raised
from flows.durable.children import reopen_child
from flows.early_end import BudgetReachedError, DeclinedError
from flows.person import Decision, ask_person
from tasks.report import artifact_key

if TYPE_CHECKING:
    from flows.durable.attempt import Attempt


class MoreBudget(Decision):
    """The form. Whoever submits it as it is lets the run come to its end, as far as that can be told."""

    go_on: bool = Field(True, description="Switch it off to decline: the run ends with its last saved block.")
    more: float = Field(0.0, ge=0, description="By how much the limit is raised; 0 lifts it.")


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
    question = _question(attempt, reached)
    await note_asked(attempt.scope.flow_run_id, question)
    await reopen_child(attempt.scope.flow_run_id, str(reached))
    await ask_for_more(question)


async def read_answer(flow_run_id: str) -> bool:
    """What was said to the question that a run was suspended with, before anything is begun; False: a no.

    Raises:
        NotAnsweredError, Pause: as `flows.person.ask_person`; it is asked once more where a Retry did not wait.
    """
    question = await asked(flow_run_id)
    if question is None:
        return True
    more = await ask_for_more(question)
    if more is not None:
        await note_raised(flow_run_id, question.path.rpartition(".")[2], more)
    await note_asked(flow_run_id, None)
    return more is not None


async def _settle(attempt: Attempt, reached: BudgetReachedError) -> bool:
    more = await ask_for_more(_question(attempt, reached))
    if more is None:
        attempt.budget.asks = False
        return False
    account = attempt.budget.account_of(reached)
    await note_raised(account.owner, reached.field, more)
    attempt.budget.reopen(more)
    return True


async def ask_for_more(question: Asked) -> float | None:
    """By how much a limit may be raised, 0 where it is lifted; None after a no."""
    key = artifact_key(f"{question.path} {question.limit:.10g}")  # small letters, digits and dashes, as Prefect wants
    why = f"{question.path} = {question.limit:,.10g} is reached"
    try:
        said = await ask_person(
            key, question.text, why=why, timeout_s=question.timeout_s, form=MoreBudget, more=question.more
        )
    except DeclinedError:
        return None
    return said.more if isinstance(said, MoreBudget) else question.more


def _question(attempt: Attempt, reached: BudgetReachedError) -> Asked:
    account = attempt.budget.account_of(reached)
    return question_about(reached, account, len(attempt.rows), attempt.config.cycles, "cycles")


def question_about(reached: BudgetReachedError, account: Account, done: int, of: int, parts: str) -> Asked:
    """What a person has to know: how far the run is, and what its rest may cost, going by the parts that are done."""
    rest = reached.used * (of - done) / done if done else reached.limit
    more = max(ceil(reached.used + rest - reached.limit), ceil(reached.needed))
    saved = f"{done} of {of} {parts} are trained and saved" if done else "nothing is saved yet"
    text = (
        f"**{reached.path} is reached.** No session is open, nothing is billed while you think.\n\n- {reached}\n"
        f"- {saved}\n- about {more:,} more than {reached.limit:,.10g} would bring it to its end: `more` below\n"
    )
    return Asked(reached.path, reached.limit, float(more), account.config.timeout_s, text)
