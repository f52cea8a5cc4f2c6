"""The question by how much a limit may be raised: its form, its words, its answer."""

from __future__ import annotations

from pydantic import Field

from flows.amounts import whole
from flows.config.budget import KINDS
from flows.durable.budget.account import Account
from flows.durable.budget.labels import Asked, note_raised
from flows.durable.budget.rest import Rest, enough_more
from flows.early_end import BudgetReachedError, DeclinedError
from flows.person import Decision, answer_of
from tasks.report import artifact_key


class MoreBudget(Decision):
    """The form. Whoever submits it as it is lets the run come to its end, as far as that can be told."""

    go_on: bool = Field(True, description="Switch it off to decline: the run ends with its last saved block.")
    more: float = Field(0.0, ge=0, le=1e15, description="By how much the limit is raised, 0 or more; 0 lifts it.")


def question_about(reached: BudgetReachedError, account: Account, rest: Rest, *, done: int, of: str) -> Asked:
    """What a person has to know: how far the run is, and what its rest needs, as far as that can be told.

    Args:
        reached: the limit.
        account: which it is of.
        rest: what is still to come.
        done: how many cycles, or stages, are trained.
        of: how many there are: "4 cycles".
    """
    more, limit = enough_more(reached, account, rest), account.limits[reached.field]
    saved = f"{done} of {of} {'is' if done == 1 else 'are'} trained and saved" if done else "nothing is saved yet"
    text = (
        f"**{reached.path} is reached.** No session is open, nothing is billed while you think.\n\n- {reached}\n"
        f"- {saved}\n- about {reached.told(more)} more than {reached.told(limit)} would bring it to its end, as far as "
        "that can be told: a yes raises it by that; in the Prefect UI, `more` takes another number\n"
    )
    return Asked(reached.path, limit, float(more), account.config.timeout_s, text)


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
