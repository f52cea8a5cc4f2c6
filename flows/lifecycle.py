"""What makes a coroutine function a flow of ours: the hook that closes sessions, and what of its result is kept.

`composite_flow` is for flows that call training flows, the project's pipeline and a user's own.

A flow's own file has no `from __future__ import annotations`: a runner loads it under a name that is not importable,
and Prefect could not find what the string "GrpoConfig" means.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, ParamSpec, Protocol, TypeVar, cast

from prefect import flow as prefect_flow
from prefect.exceptions import CancelledRun
from prefect.flows import Flow, FlowStateHook
from prefect.runtime import flow_run as current_flow_run
from prefect.states import Cancelled, Completed

from flows.begun_anew import until_the_budget_ends
from flows.cancelling import heeds_cancel
from flows.early_end import EarlyEnd
from flows.hooks import close_sessions_of_flow_run, close_sessions_of_tree
from flows.identity import known_as
from flows.reopening import reopen_failed_stages
from tasks.stopped import stopped_by_budget, why_stopped

STOPPED = "Stopped"
"""Name of the state of a run that its budget has stopped: Completed, and there is more to do."""

P = ParamSpec("P")
R = TypeVar("R")


class FlowDecorator(Protocol):
    """What `flow(…)` returns, for the coroutine functions that every flow here is."""

    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Flow[P, Coroutine[Any, Any, R]]:
        """Make a flow of a coroutine function."""
        ...


def training_flow(name: str) -> FlowDecorator:
    """A flow that owns a session: the hook on every way it can end badly.

    Prefect's flow-level retries stay 0: they would begin again inside a process whose session is being closed.
    """

    def decorate(function: Callable[P, Coroutine[Any, Any, R]]) -> Flow[P, Coroutine[Any, Any, R]]:
        return _guarded(name, function, _ending_early(_telling_why(function)), close=close_sessions_of_flow_run)

    return decorate


def composite_flow(name: str) -> FlowDecorator:
    """A top-level flow that calls training flows, one after another: stages that a Retry adopts or goes on with.

    A stage that has completed is adopted; one that has not goes on as the flow run it was, at the block it failed in
    (`flows.reopening`). Stages are matched by order of call, so the flow calls them in the same order every time. What
    it returns JSON can hold: a composite flow may be a stage of another.
    """

    def decorate(function: Callable[P, Coroutine[Any, Any, R]]) -> Flow[P, Coroutine[Any, Any, R]]:
        ending = _ending_early(_telling_why(function))

        @wraps(function)
        async def reopening(*args: P.args, **kwargs: P.kwargs) -> R:
            await reopen_failed_stages()
            return await ending(*args, **kwargs)

        return _guarded(name, function, reopening, close=close_sessions_of_tree)

    return decorate


def _guarded(
    name: str,
    function: Callable[P, Coroutine[Any, Any, R]],
    body: Callable[P, Coroutine[Any, Any, R]],
    *,
    close: FlowStateHook[..., Any],
) -> Flow[P, Coroutine[Any, Any, R]]:
    """The flow of `function`, which runs `body`; `close` is its hook on every way it can end badly.

    Its result is persisted, as JSON: where another flow called it, that one's Retry adopts what is finished.
    """
    made = prefect_flow(
        name=name,
        flow_run_name=_configured_name,
        retries=0,
        persist_result=True,
        result_serializer="json",
        on_failure=[close],
        on_crashed=[close],
        on_cancellation=[close],
    )(function)
    # Behind Prefect's back: a flow is found again by the file of its function, which is not this one.
    made.fn = known_as(name, body)
    return made


def _ending_early(function: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
    """The function, with Skipped or Cancelled as the flow run's state where it says so, or where Cancel is pressed.

    See `flows.early_end` and `flows.cancelling`. A flow that has called one which ends Cancelled ends so itself.
    """

    @wraps(function)
    async def ending(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            async with heeds_cancel():
                return await function(*args, **kwargs)
        except EarlyEnd as end:
            return cast("R", end.state)  # Prefect takes a State that a flow returns for its own
        except CancelledRun as below:
            return cast("R", Cancelled(message=str(below)))

    return ending


def _telling_why(function: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
    """The function; that its run has stopped early, and why, is the message of its state.

    Where its budget has stopped it, its name, too: that is what lists of runs show. Its type stays COMPLETED.
    """

    @wraps(function)
    async def telling(*args: P.args, **kwargs: P.kwargs) -> R:
        summary = await function(*args, **kwargs)
        if not isinstance(summary, dict) or (why := why_stopped(summary)) is None:
            return summary
        name = STOPPED if stopped_by_budget(summary) else None
        # Prefect persists what such a State holds as it does any other result.
        return cast("R", Completed(name=name, message=f"stopped early: {why}", data=summary))

    return telling


def _configured_name() -> str:
    """The run's own name, as its folder has it; else the one that Prefect made up."""
    config = current_flow_run.parameters.get("config")
    name = config.get("name") if isinstance(config, dict) else getattr(config, "name", None)
    return str(name or current_flow_run.name)


def block_flow(name: str, run_name: str = "{block.label}") -> FlowDecorator:
    """A subflow whose result is persisted: on a Retry the completed ones are adopted, not run and billed again."""

    def decorate(function: Callable[P, Coroutine[Any, Any, R]]) -> Flow[P, Coroutine[Any, Any, R]]:
        made = prefect_flow(
            name=name,
            flow_run_name=run_name,
            retries=0,
            persist_result=True,
            result_serializer="json",
            validate_parameters=False,
        )(_without_a_form(function))
        made.fn = known_as(name, _ending_early(until_the_budget_ends(function)))
        return made

    return decorate


def _without_a_form(function: Callable[P, R]) -> Callable[P, R]:
    """The function, whose parameters Prefect will not describe: nobody starts a block by a form.

    The descriptions would be a seventh of what it takes to import the flows, which every attempt does.
    """
    names = [parameter.replace(annotation=Parameter.empty) for parameter in signature(function).parameters.values()]
    function.__signature__ = Signature(names)  # type: ignore[attr-defined]
    return function


def inner_flow(name: str, run_name: str) -> FlowDecorator:
    """A subflow within a cycle: never persisted, not even by inheritance.

    After a crash the cycle runs again and finds its former children; adopted, they would hand it the ids of a session
    that is closed.
    """

    def decorate(function: Callable[P, Coroutine[Any, Any, R]]) -> Flow[P, Coroutine[Any, Any, R]]:
        made = prefect_flow(
            name=name, flow_run_name=run_name, retries=0, persist_result=False, validate_parameters=False
        )(function)
        made.fn = _ending_early(function)
        return made

    return decorate
