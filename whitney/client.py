"""The asynchronous client: every route of the table, ordered operations, long polls. Knows no Prefect.

The names are the cookbook's: `run_operation`, `sampler_operation`, `finish`, `cancel`, `close_session`. Beside the
first two stand `submit_run_operation` and `submit_sampler_operation`, which return at once with a handle to await.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
import uuid
from contextlib import nullcontext
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import orjson

from whitney.errors import ApiError, ConnectionFailedError, WaitTimeoutError, WhitneyError, of_another_server
from whitney.retry import Attempts, RetryPolicy
from whitney.sequence import OperationHandle, RunSequence
from whitney.settings import WhitneySettings
from whitney.transport import MAX_CONNECTIONS, AnswerT, Endpoint, Refusal, Request, parse, write
from whitney.types import (
    TERMINAL_OPERATION,
    TERMINAL_RUN,
    Capabilities,
    CreateRun,
    Health,
    Operation,
    Run,
    Session,
    SessionList,
    State,
)

# The gateway answers a long poll after wait_s at the latest; this is for the way back.
POLL_MARGIN_S = 15.0

# Long polls may hold all connections but these, so that a post or a heartbeat never waits for one of them to end.
FREE_CONNECTIONS = 64

# An endpoint that does not hold a poll (a proxy may not, one that is stopping does not) is not asked in a hot loop.
UNHELD_POLL_PAUSE_S = 0.25

# One lost answer is nobody's business; a run that stands still for minutes must not do so silently. Nor need it be told
# for each of a hundred requests that wait for the same endpoint.
TOLD_FROM_ATTEMPT = 4
TOLD_EVERY_S = 30.0
A_DAY_S = 86400.0

logger = logging.getLogger(__name__)


class WhitneyClient:
    """A client of one endpoint, for one event loop; use it as an async context manager, or call `aclose`.

    No `__dict__`: Prefect stores an ordinary object's attributes where it is a parameter, and there is a key in here.
    """

    __slots__ = ("_closed", "_endpoint", "_http", "_in_flight", "_long_polls", "_sequences", "_told_at")

    def __init__(
        self,
        settings: WhitneySettings,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        retry: RetryPolicy | None = None,
    ) -> None:
        self._endpoint = Endpoint(settings, retry)
        self._http = httpx.AsyncClient(transport=transport, **self._endpoint.http_options())
        self._long_polls = asyncio.Semaphore(MAX_CONNECTIONS - FREE_CONNECTIONS)
        self._sequences: dict[str, RunSequence] = {}
        self._in_flight: set[asyncio.Timeout] = set()
        self._closed = False
        self._told_at = -math.inf

    def __repr__(self) -> str:
        return f"WhitneyClient({self._endpoint.settings.base_url})"

    @property
    def settings(self) -> WhitneySettings:
        """What the client was made with."""
        return self._endpoint.settings

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop posting and close the connections; idempotent. Runs and sessions are not touched."""
        self._closed = True
        try:
            await asyncio.gather(*(sequence.aclose() for sequence in self._sequences.values()))
            # httpx would break the connections that stand, and let one that is being made live on, and leak.
            for scope in self._in_flight:
                if not scope.expired():
                    scope.reschedule(asyncio.get_running_loop().time())
            while self._in_flight:  # noqa: ASYNC110 - a few turns of the loop, in which they unwind
                await asyncio.sleep(0)
        finally:
            await self._http.aclose()

    # ── endpoint ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def healthz(self) -> Health:
        """Whether the endpoint is up; needs no key."""
        return await self._ask(Health, "healthz")

    async def capabilities(self) -> Capabilities:
        """What the endpoint can do, by provider and model.

        Raises:
            ConfigurationError: whatever answers there is no Whitney.
        """
        try:
            return await self._ask(Capabilities, "capabilities")
        except ApiError as error:
            if (another := of_another_server(error, self.settings.base_url)) is None:
                raise
            raise another from error

    # ── sessions ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def create_session(self, *, create_key: str, labels: dict[str, str] | None = None) -> Session:
        """Open a session; the same create_key names the same session, so a lost answer opens no second one."""
        body = {"create_key": create_key, "labels": labels or {}}
        return await self._ask(Session, "create_session", body=body)

    async def get_session(self, session_id: str) -> Session:
        """A session with its runs."""
        return await self._ask(Session, "get_session", session_id=session_id)

    async def list_sessions(self, *, label: tuple[str, str] | None = None, status: str | None = None) -> list[Session]:
        """Sessions, by one label and by status ("open", "closed")."""
        params = {"label": f"{label[0]}:{label[1]}"} if label else {}
        params |= {"status": status} if status else {}
        return (await self._ask(SessionList, "list_sessions", params=params)).sessions

    async def heartbeat(self, session_id: str) -> None:
        """Tell the endpoint that somebody still wants the session."""
        await self._tell("heartbeat", session_id=session_id)

    async def close_session(self, session_id: str) -> None:
        """Close a session; idempotent.

        Raises:
            ConflictError: `run_not_terminal`: finish or cancel its runs first, and wait.
        """
        await self._tell("close_session", session_id=session_id)

    # ── runs ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def create_run(self, session_id: str, request: CreateRun) -> Run:
        """Create a run: fresh, or restored from a state or an adapter."""
        body = request.model_dump(mode="json")
        run = await self._ask(Run, "create_run", body=body, session_id=session_id)
        # A create_key that names a run of this client finds its sequence, with whatever is still being posted.
        self._sequences.setdefault(run.run_id, RunSequence(self, run.run_id, run.next_seq_id))
        return run

    async def get_run(self, run_id: str) -> Run:
        """A run's status and what it has been billed for."""
        return await self._ask_run("get_run", run_id)

    async def finish(self, run_id: str) -> Run:
        """Ask a run to end when its queue is empty; then `wait_terminal`."""
        return await self._ask_run("finish_run", run_id)

    async def cancel(self, run_id: str) -> Run:
        """Ask a run to end now; then `wait_terminal`."""
        return await self._ask_run("cancel_run", run_id)

    async def wait_terminal(self, run_id: str, *, timeout_s: float = 300.0) -> Run:
        """Poll a run until it is finished, cancelled or failed.

        Raises:
            WaitTimeoutError: it still is not, after `timeout_s`.
        """
        status, pause = "not known", 0.05
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    run = await self.get_run(run_id)
                    if run.status in TERMINAL_RUN:
                        return run
                    status = run.status
                    await asyncio.sleep(pause)
                    pause = min(pause * 2, 1.0)
        except TimeoutError:
            pass
        raise WaitTimeoutError(
            f"run {run_id} is not terminal after {timeout_s:g} s (it is {status}) and may still be billing: cancel it, "
            "and close its session once it is terminal"
        )

    # ── operations ────────────────────────────────────────────────────────────────────────────────────────────────

    def submit_run_operation(self, run_id: str, kind: str, payload: dict[str, Any]) -> OperationHandle:
        """Put an operation on the run's queue, in the order of the calls; await the handle for its result."""
        return self._submit(OperationHandle(self, run_id, kind, payload, None))

    def submit_sampler_operation(
        self, run_id: str, sampler_id: str, kind: str, payload: dict[str, Any]
    ) -> OperationHandle:
        """The same for `sample` and `logprobs`, which take the run's next place too."""
        return self._submit(OperationHandle(self, run_id, kind, payload, sampler_id))

    async def run_operation(self, run_id: str, kind: str, payload: dict[str, Any]) -> dict[str, Any]:
        """Submit an operation and wait for its result; raises as `OperationHandle.result`."""
        return await self.submit_run_operation(run_id, kind, payload)

    async def sampler_operation(
        self, run_id: str, sampler_id: str, kind: str, payload: dict[str, Any]
    ) -> dict[str, Any]:
        """Submit an operation on a snapshot and wait for its result."""
        return await self.submit_sampler_operation(run_id, sampler_id, kind, payload)

    async def get_operation(self, run_id: str, seq_id: int, *, wait_s: float = 0.0) -> Operation:
        """An operation's record; the answer comes when it is terminal, or after `wait_s` seconds (≤ 60)."""
        async with self._long_polls if wait_s > 0 else nullcontext():
            return await self._ask(
                Operation,
                "get_operation",
                params={"wait_s": f"{wait_s:g}"},
                read_timeout_s=wait_s + POLL_MARGIN_S,
                run_id=run_id,
                seq_id=seq_id,
            )

    # ── what outlives a run ───────────────────────────────────────────────────────────────────────────────────────

    async def get_state(self, state_id: str) -> State:
        """A saved state's record."""
        return await self._ask(State, "get_state", state_id=state_id)

    async def delete_state(self, state_id: str) -> None:
        """Delete a saved state."""
        await self._tell("delete_state", state_id=state_id)

    async def download_artifact(self, artifact_id: str, to: Path) -> None:
        """Stream an artifact into a file, which is complete whenever it exists; a broken stream begins again.

        Raises:
            ApiError: `artifact_corrupt`: its SHA-256 is not the one that the endpoint has on record.
        """
        request = self._endpoint.request("get_artifact", artifact_id=artifact_id)
        attempts = self._endpoint.policy.start()
        to.parent.mkdir(parents=True, exist_ok=True)
        beside = to.with_name(f".{to.name}.{uuid.uuid4().hex[:8]}.part")
        try:
            while (refusal := await self._fetch(request, beside)) is not None:
                await self._pause(refusal, attempts)
            beside.replace(to)
        finally:
            beside.unlink(missing_ok=True)

    async def require_artifact(self, artifact_id: str) -> None:
        """Make sure that an artifact is there, without reading it: the wire has no record of one beside its bytes.

        Raises:
            NotFoundError: there is none.
        """
        request = self._endpoint.request("get_artifact", artifact_id=artifact_id)
        attempts = self._endpoint.policy.start()
        while (refusal := await self._fetch(request, None)) is not None:
            await self._pause(refusal, attempts)

    async def delete_artifact(self, artifact_id: str) -> None:
        """Delete an artifact."""
        await self._tell("delete_artifact", artifact_id=artifact_id)

    # ── what a RunSequence needs (whitney.sequence.Wire) ──────────────────────────────────────────────────────────

    async def next_seq_id(self, run_id: str) -> int:
        """The seq_id a run expects next; asked once, for a run that this client did not create."""
        return (await self.get_run(run_id)).next_seq_id

    async def post_operation(self, handle: OperationHandle, seq_id: int) -> None:
        """Post an operation until it is accepted; a lost answer is followed by the identical bytes."""
        assert handle.encoded is not None
        body = {"seq_id": seq_id, "kind": handle.kind, "payload": orjson.Fragment(handle.encoded)}
        about = f"seq_id={seq_id} {handle.kind}"
        if handle.sampler_id is None:
            await self._tell("run_operation", body=body, about=about, run_id=handle.run_id)
        else:
            await self._tell(
                "sampler_operation", body=body, about=about, run_id=handle.run_id, sampler_id=handle.sampler_id
            )

    async def await_operation(self, run_id: str, seq_id: int) -> Operation:
        """Long-poll an operation until it is terminal."""
        wait_s = self.settings.wait_s
        while True:
            asked_at = time.monotonic()
            operation = await self.get_operation(run_id, seq_id, wait_s=wait_s)
            if operation.status in TERMINAL_OPERATION:
                return operation
            if time.monotonic() - asked_at < wait_s / 2:
                await self._endpoint.policy.sleep(UNHELD_POLL_PAUSE_S)

    def _submit(self, handle: OperationHandle) -> OperationHandle:
        sequence = self._sequences.get(handle.run_id)
        if sequence is None:
            sequence = self._sequences[handle.run_id] = RunSequence(self, handle.run_id, None)
        sequence.submit(handle)
        return handle

    async def _ask_run(self, route: str, run_id: str) -> Run:
        run = await self._ask(Run, route, run_id=run_id)
        sequence = self._sequences.get(run_id)
        if run.status in TERMINAL_RUN and sequence is not None and sequence.idle:
            del self._sequences[run_id]  # a client may outlive thousands of runs
        return run

    async def _ask(self, model: type[AnswerT], route: str, **options: Any) -> AnswerT:
        request = self._endpoint.request(route, **options)
        return parse(model, request, await self._send(request))

    async def _tell(self, route: str, **options: Any) -> None:
        await self._send(self._endpoint.request(route, **options))

    async def _send(self, request: Request) -> dict[str, Any]:
        attempts = self._endpoint.policy.start()
        while True:
            try:
                response = await self._attempt(request)
                answer = self._endpoint.answer(request, response)
            except httpx.RequestError as error:
                answer = self._endpoint.unanswered(request, error)
            if not isinstance(answer, Refusal):
                return answer
            await self._pause(answer, attempts)

    async def _fetch(self, request: Request, to: Path | None) -> Refusal | None:
        """One attempt at streaming an answer into a file, or at being answered; None when it has succeeded."""
        try:
            response = await self._attempt(request, stream=True)
            self._endpoint.reached = True
            try:
                if response.is_success:
                    if to is not None:
                        await write(response, to)
                    return None
                await response.aread()
            finally:
                await response.aclose()
        except httpx.RequestError as error:
            return self._endpoint.unanswered(request, error)
        refusal = self._endpoint.answer(request, response)
        assert isinstance(refusal, Refusal)
        return refusal

    async def _pause(self, refusal: Refusal, attempts: Attempts) -> None:
        """Wait before the next attempt, or raise when there is none.

        Called outside of any `except`: httpx's exceptions hold the request with its headers, and what is raised inside
        carries them along as its context.
        """
        wait = refusal.wait_s(attempts)
        if wait is None:
            raise refusal.error
        self._tell_pause(wait, attempts, refusal.error)
        await self._endpoint.policy.sleep(wait)

    def _tell_pause(self, wait: float, attempts: Attempts, error: WhitneyError) -> None:
        policy, level = self._endpoint.policy, logging.INFO
        now = policy.clock()
        if attempts.count >= TOLD_FROM_ATTEMPT and now - self._told_at >= TOLD_EVERY_S:
            self._told_at, level = now, logging.WARNING
        until = ""
        if attempts.until - policy.now() < A_DAY_S:  # else the time of day says nothing
            until = time.strftime(", and until %H:%M:%S", time.localtime(attempts.until))
        logger.log(level, "asking again in %.1f s%s: %s", wait, until, error)

    async def _attempt(self, request: Request, *, stream: bool = False) -> httpx.Response:
        """Send once. Closing the client ends it: its scope is a timeout that only `aclose` sets off."""
        scope = asyncio.timeout(None)
        try:
            if not self._closed:
                async with scope:
                    self._in_flight.add(scope)
                    return await self._http.send(self._endpoint.wire(self._http, request), stream=stream)
        except TimeoutError:
            pass
        finally:
            self._in_flight.discard(scope)
        raise ConnectionFailedError(f"{request.where}: the client is closed; make a new one")
