"""What makes a coroutine function a flow of ours: the hook that closes sessions, and what of its result is kept.

A flow's own file has no `from __future__ import annotations`: a runner loads it under a name that is not importable,
and Prefect could not find what the string "GrpoConfig" means.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, Protocol, TypeVar

from prefect import flow as prefect_flow
from prefect.flows import Flow
from prefect.runtime import flow_run as current_flow_run

from flows.closing import close_sessions_of_flow_run

P = ParamSpec("P")
R = TypeVar("R")


class FlowDecorator(Protocol):
    """What `flow(…)` returns, for the coroutine functions that every flow here is."""

    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Flow[P, Coroutine[Any, Any, R]]:
        """Make a flow of a coroutine function."""
        ...


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
