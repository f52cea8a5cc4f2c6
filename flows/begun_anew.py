"""A block that the budget has stopped begins anew in the same flow run, once a person has said that it may cost more.

Prefect finds the former run of a subflow by the order of calls, so whoever has called a block cannot call it again.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, Protocol, TypeVar, runtime_checkable

from prefect.exceptions import CancelledRun

from flows.early_end import BudgetReachedError

P = ParamSpec("P")
R = TypeVar("R")


@runtime_checkable
class Budgeted(Protocol):
    """The first argument of a block or a measurement: the attempt it is of."""

    async def ask_for_budget(self, ended: Exception) -> None:
        """Come back where what has `ended` may begin anew; else raise what it is to end with."""
        ...


def until_the_budget_ends(function: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
    """The function, called again each time that it was stopped and may go on."""

    @wraps(function)
    async def again(*args: P.args, **kwargs: P.kwargs) -> R:
        while True:
            try:
                return await function(*args, **kwargs)
            except (BudgetReachedError, CancelledRun) as ended:
                attempt = next(iter((*args, *kwargs.values())), None)
                if not isinstance(attempt, Budgeted):
                    raise
                await attempt.ask_for_budget(ended)

    return again
