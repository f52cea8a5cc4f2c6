"""What makes a coroutine function a flow of ours: the hook that closes sessions, and what of its result is kept.

The runner calls the hook in another process when this one is gone; it therefore knows nothing but the flow run's id
and count. What closes sessions while the process lives is `flows.durable.session_scope`.

A flow's own file has no `from __future__ import annotations`: a runner loads it under a name that is not importable,
and Prefect could not find what the string "GrpoConfig" means.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, Protocol, TypeVar

from prefect import flow as prefect_flow
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.flows import Flow
from prefect.logging import get_logger
from prefect.runtime import flow_run as current_flow_run

from tasks.credentials import settings_for
from tasks.events import emit
from tasks.verdicts import publish_verdicts
from whitney.errors import WhitneyError
from whitney.labels import FLOW_RUN
from whitney.lifecycle import Verdict, close_sessions, could_not_list

P = ParamSpec("P")
R = TypeVar("R")

# Prefect kills a cancelled process about 30 s after SIGTERM; the hook must be done well before.
HOOK_DEADLINE_S = 20.0


class FlowDecorator(Protocol):
    """What `flow(…)` returns, for the coroutine functions that every flow here is."""

    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Flow[P, Coroutine[Any, Any, R]]:
        """Make a flow of a coroutine function."""
        ...


def close_sessions_of_flow_run(flow: Flow[..., object], flow_run: FlowRun, state: State[object]) -> None:
    """Cancel every run of the flow run's sessions, poll until terminal, close: on failure, crash and cancellation.

    Idempotent, and bounded in time. Sessions of a later attempt are left alone: Retry may already be running.
    """
    credentials_block = (flow_run.parameters.get("config") or {}).get("credentials_block")
    try:
        verdicts = close_sessions(
            settings_for(credentials_block),
            label=(FLOW_RUN, str(flow_run.id)),
            attempts_up_to=ended_attempts(flow_run),
            deadline_s=HOOK_DEADLINE_S,
            on_progress=tell_progress,
        )
    except WhitneyError as error:
        verdicts = [Verdict("", False, {}, 0.0, could_not_list(str(flow_run.id), str(error)))]
    for verdict in verdicts:
        tell(verdict.message, closed=verdict.closed, session_id=verdict.session_id)
    publish_verdicts(str(flow_run.id), verdicts)


def ended_attempts(flow_run: FlowRun) -> int:
    """How many attempts of the flow run have come to an end: those whose sessions nobody needs any more.

    A runner calls `on_crashed` with the flow run as it was polled, before the attempt that has just died began: its
    `run_count` is one too low (seen with Prefect 3.9.1), and its state tells. Everybody else hands in what is. The
    server is not asked: a newer attempt may be running by now, and its session must live.
    """
    polled = flow_run.state is None or flow_run.state.type in {StateType.SCHEDULED, StateType.PENDING}
    return flow_run.run_count + polled


def tell(message: str, *, closed: bool, session_id: str | None = None) -> None:
    """How a session ended: in the log, and to whoever listens in this process."""
    logger = get_logger("whitney.lifecycle")
    (logger.info if closed else logger.error)(message)
    emit("closed", message=message, closed=closed)
    if closed and session_id is not None:
        emit("session_closed", session_id=session_id)


def tell_progress(message: str) -> None:
    """How far the end of a session has come, while it is waited for; may be called from any thread."""
    emit("closing", message=message)


def training_flow(name: str) -> FlowDecorator:
    """A top-level flow that can own a session: the hook on every way it can end badly.

    Prefect's flow-level retries stay 0: they would begin again inside a process whose session is being closed.
    """
    return prefect_flow(
        name=name,
        flow_run_name=_configured_name,
        retries=0,
        persist_result=False,
        on_failure=[close_sessions_of_flow_run],
        on_crashed=[close_sessions_of_flow_run],
        on_cancellation=[close_sessions_of_flow_run],
    )


def _configured_name() -> str:
    """The run's own name, as its folder has it; else the one that Prefect made up."""
    config = current_flow_run.parameters.get("config")
    name = config.get("name") if isinstance(config, dict) else getattr(config, "name", None)
    return str(name or current_flow_run.name)


def block_flow(name: str, run_name: str = "{block.label}") -> FlowDecorator:
    """A subflow whose result is persisted: on a Retry the completed ones are adopted, not run and billed again."""
    return prefect_flow(
        name=name,
        flow_run_name=run_name,
        retries=0,
        persist_result=True,
        result_serializer="json",
        validate_parameters=False,
    )


def inner_flow(name: str, run_name: str) -> FlowDecorator:
    """A subflow within a cycle: never persisted, not even by inheritance.

    After a crash the cycle runs again and finds its former children; adopted, they would hand it the ids of a session
    that is closed.
    """
    return prefect_flow(name=name, flow_run_name=run_name, retries=0, persist_result=False, validate_parameters=False)
