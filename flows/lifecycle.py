"""Sessions are opened late, beaten while they live, and closed whatever happens.

Opened late: a Retry whose blocks are all adopted, and a run whose input is wrong, allocate nothing.
Closed always: on the normal path by `close`, on an exception by `abandon`, and — when this process is gone — by the
hook, which the runner calls in another process and which therefore knows nothing but the flow run's id and count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any, ParamSpec, Protocol, TypeVar
from uuid import UUID

from prefect import flow as prefect_flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun, State
from prefect.flows import Flow
from prefect.logging import get_logger
from prefect.runtime import flow_run as current_flow_run

from flows.config import FlowConfig
from tasks.credentials import settings_for
from tasks.events import emit
from tasks.policy import Policy
from tasks.session import close_session, create_run, create_session, finish_run, wait_terminal
from whitney.client import WhitneyClient
from whitney.errors import WhitneyError
from whitney.heartbeat import beat
from whitney.labels import ATTEMPT, CREATE_KEY, FLOW_RUN, ROOT_FLOW_RUN
from whitney.lifecycle import close_sessions, could_not_close
from whitney.types import CreateRun, Initial, LoraConfig

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
    logger = get_logger("whitney.lifecycle")
    credentials_block = (flow_run.parameters.get("config") or {}).get("credentials_block")
    try:
        verdicts = close_sessions(
            settings_for(credentials_block),
            label=(FLOW_RUN, str(flow_run.id)),
            attempts_up_to=flow_run.run_count,
            deadline_s=HOOK_DEADLINE_S,
        )
    except WhitneyError as error:
        # A sentence for the person who reads the log; the traceback of a connection says nothing more.
        logger.error("cannot tell whether a session of flow run %s is open: %s", flow_run.id, error)  # noqa: TRY400
        return
    for verdict in verdicts:
        _tell(verdict.message, closed=verdict.closed)


def _tell(message: str, *, closed: bool) -> None:
    """How a session ended: in the log, and to whoever listens in this process."""
    logger = get_logger("whitney.lifecycle")
    (logger.info if closed else logger.error)(message)
    emit("closed", message=message, closed=closed)


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


class SessionScope:
    """At most one open session with one policy run, and the duty to end both."""

    __slots__ = ("_client", "_requested", "_session_id", "_stack", "attempt", "flow_run_id", "policy", "root_id")

    def __init__(self, client: WhitneyClient, *, flow_run_id: str, root_id: str, attempt: int) -> None:
        self._client = client
        self._stack = AsyncExitStack()
        self._requested = False
        self._session_id: str | None = None
        self.flow_run_id = flow_run_id
        self.root_id = root_id
        self.attempt = attempt
        self.policy: Policy | None = None

    @property
    def create_key(self) -> str:
        """Names this attempt's session and run: asked for twice, they are still one."""
        return f"{self.flow_run_id}:{self.attempt}"

    async def open_policy(self, config: FlowConfig, state_id: str | None) -> Policy:
        """Open the session, keep it alive, and create the run: fresh, or restored from a state with its optimizer."""
        labels = {
            FLOW_RUN: self.flow_run_id,
            ROOT_FLOW_RUN: self.root_id,
            ATTEMPT: str(self.attempt),
            CREATE_KEY: self.create_key,
        }
        self._requested = True
        session = await create_session(self._client, self.create_key, labels)
        self._session_id = session.session_id
        await self._stack.enter_async_context(beat(self._client, session.session_id, ttl_s=session.ttl_s))
        await self._show_session()
        request = CreateRun(
            create_key=self.create_key,
            provider=config.model.provider,
            model=config.model.name,
            lora=LoraConfig(rank=config.lora.rank, alpha=config.lora.alpha, seed=config.seed),
            initial=Initial(state_id=state_id) if state_id else None,
        )
        run_id = await create_run(self._client, self._session_id, request)
        self.policy = Policy(self._client, session_id=self._session_id, run_id=run_id, state_id=state_id)
        return self.policy

    async def _show_session(self) -> None:
        """A label on the flow run, for people: which session an attempt had. Nothing here ever reads it."""
        async with get_client() as api:
            await api.update_flow_run_labels(
                UUID(self.flow_run_id), {f"whitney.session.{self.attempt}": str(self._session_id)}
            )

    async def close(self) -> None:
        """The normal end: finish the run, close the session."""
        if self._session_id is None:
            return
        if self.policy is not None:
            await finish_run(self._client, self.policy.run_id)
            await wait_terminal(self._client, self.policy.run_id)
        await self._stack.aclose()
        await close_session(self._client, self._session_id)
        self._session_id, self._requested = None, False

    async def abandon(self) -> None:
        """The bad end, in the fixed order: cancel the run, poll until it is terminal, then close the session.

        Found by label, not by id: the answer that held the id may be what was lost. Plain client calls, not tasks:
        Prefect may be what failed. Whatever goes wrong here the hook does again.
        """
        if not self._requested:
            return
        await self._stack.aclose()
        try:
            verdicts = await asyncio.to_thread(
                close_sessions,
                self._client.settings,
                label=(CREATE_KEY, self.create_key),
                attempts_up_to=self.attempt,
                deadline_s=HOOK_DEADLINE_S,
            )
        except WhitneyError as error:  # told, not raised: it must not hide why the run is being abandoned
            name = self._session_id or f"the session labelled {CREATE_KEY}={self.create_key}"
            _tell(could_not_close(name, str(error)), closed=False)
            return
        for verdict in verdicts:
            _tell(verdict.message, closed=verdict.closed)
        self._session_id, self._requested = None, False
