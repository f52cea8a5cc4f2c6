"""The asynchronous client: every route of the table, ordered operations, long polls. Knows no Prefect.

The names are the cookbook's: `run_operation`, `sampler_operation`, `finish`, `cancel`, `close_session`. Beside the
first two stand `submit_run_operation` and `submit_sampler_operation`, which return at once with a handle to await.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from whitney.errors import WaitTimeoutError, WhitneyError
from whitney.retry import RetryPolicy
from whitney.sequence import OperationHandle, RunSequence
from whitney.settings import WhitneySettings
from whitney.transport import Endpoint, Refusal, Request
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


class WhitneyClient:
    """A client of one endpoint, for one event loop; use it as an async context manager, or call `aclose`.

    No `__dict__`: Prefect stores an ordinary object's attributes where it is a parameter, and there is a key in here.
    """

    __slots__ = ("_endpoint", "_http", "_sequences")

    def __init__(
        self,
        settings: WhitneySettings,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        retry: RetryPolicy | None = None,
    ) -> None:
        self._endpoint = Endpoint(settings, retry)
        self._http = httpx.AsyncClient(transport=transport, **self._endpoint.http_options())
        self._sequences: dict[str, RunSequence] = {}

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
        for sequence in self._sequences.values():
            await sequence.aclose()
        await self._http.aclose()

    # ── endpoint ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def healthz(self) -> Health:
        """Whether the endpoint is up; needs no key."""
        return Health.model_validate(await self._ask("healthz"))

    async def capabilities(self) -> Capabilities:
        """What the endpoint can do, by provider and model."""
        return Capabilities.model_validate(await self._ask("capabilities"))

    # ── sessions ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def create_session(self, *, create_key: str, labels: dict[str, str] | None = None) -> Session:
        """Open a session; the same create_key names the same session, so a lost answer opens no second one."""
        body = {"create_key": create_key, "labels": labels or {}}
        return Session.model_validate(await self._ask("create_session", body=body))

    async def get_session(self, session_id: str) -> Session:
        """A session with its runs."""
        return Session.model_validate(await self._ask("get_session", session_id=session_id))

    async def list_sessions(self, *, label: tuple[str, str] | None = None, status: str | None = None) -> list[Session]:
        """Sessions, by one label and by status ("open", "closed")."""
        params = {"label": f"{label[0]}:{label[1]}"} if label else {}
        params |= {"status": status} if status else {}
        return SessionList.model_validate(await self._ask("list_sessions", params=params)).sessions

    async def heartbeat(self, session_id: str) -> None:
        """Tell the endpoint that somebody still wants the session."""
        await self._ask("heartbeat", session_id=session_id)

    async def close_session(self, session_id: str) -> None:
        """Close a session; idempotent.

        Raises:
            ConflictError: `run_not_terminal`: finish or cancel its runs first, and wait.
        """
        await self._ask("close_session", session_id=session_id)

    # ── runs ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def create_run(self, session_id: str, request: CreateRun) -> Run:
        """Create a run: fresh, or restored from a state or an adapter."""
        body = request.model_dump(mode="json")
        run = Run.model_validate(await self._ask("create_run", body=body, session_id=session_id))
        self._sequences[run.run_id] = RunSequence(self, run.run_id, run.next_seq_id)
        return run

    async def get_run(self, run_id: str) -> Run:
        """A run's status and what it has been billed for."""
        return Run.model_validate(await self._ask("get_run", run_id=run_id))

    async def finish(self, run_id: str) -> Run:
        """Ask a run to end when its queue is empty; then `wait_terminal`."""
        return Run.model_validate(await self._ask("finish_run", run_id=run_id))

    async def cancel(self, run_id: str) -> Run:
        """Ask a run to end now; then `wait_terminal`."""
        return Run.model_validate(await self._ask("cancel_run", run_id=run_id))

    async def wait_terminal(self, run_id: str, *, timeout_s: float = 300.0) -> Run:
        """Poll a run until it is finished, cancelled or failed.

        Raises:
            WaitTimeoutError: it still is not, after `timeout_s`.
        """
        until, pause = time.monotonic() + timeout_s, 0.05
        while True:
            run = await self.get_run(run_id)
            if run.status in TERMINAL_RUN:
                return run
            if time.monotonic() + pause > until:
                raise WaitTimeoutError(
                    f"run {run_id} is still {run.status} after {timeout_s:g} s and may still be billing: cancel it, "
                    "and close its session once it is terminal"
                )
            await asyncio.sleep(pause)
            pause = min(pause * 2, 1.0)

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
        answer = await self._ask(
            "get_operation",
            params={"wait_s": f"{wait_s:g}"},
            read_timeout_s=wait_s + POLL_MARGIN_S,
            run_id=run_id,
            seq_id=seq_id,
        )
        return Operation.model_validate(answer)

    # ── what outlives a run ───────────────────────────────────────────────────────────────────────────────────────

    async def get_state(self, state_id: str) -> State:
        """A saved state's record."""
        return State.model_validate(await self._ask("get_state", state_id=state_id))

    async def delete_state(self, state_id: str) -> None:
        """Delete a saved state."""
        await self._ask("delete_state", state_id=state_id)

    async def download_artifact(self, artifact_id: str, to: Path) -> None:
        """Stream an artifact into a file, which is complete whenever it exists; a broken stream begins again."""
        request = self._endpoint.request("get_artifact", artifact_id=artifact_id)
        beside = to.with_name(f".{to.name}.part")
        attempts = self._endpoint.policy.start()
        failure: WhitneyError
        while True:
            try:
                response = await self._http.send(self._endpoint.wire(self._http, request), stream=True)
                if response.is_success:
                    await _write(response, beside)
                    beside.replace(to)
                    return
                await response.aread()
                refusal = self._endpoint.answer(request, response)
                assert isinstance(refusal, Refusal)
                wait, failure = refusal.wait_s(attempts), refusal.error
            except httpx.TransportError as error:
                wait, failure = attempts.wait_s(), self._endpoint.unreachable(request, error)
            if wait is None:
                raise failure
            await asyncio.sleep(wait)

    async def delete_artifact(self, artifact_id: str) -> None:
        """Delete an artifact."""
        await self._ask("delete_artifact", artifact_id=artifact_id)

    # ── what a RunSequence needs (whitney.sequence.Wire) ──────────────────────────────────────────────────────────

    async def next_seq_id(self, run_id: str) -> int:
        """The seq_id a run expects next; asked once, for a run that this client did not create."""
        return (await self.get_run(run_id)).next_seq_id

    async def post_operation(self, handle: OperationHandle, seq_id: int) -> None:
        """Post an operation until it is accepted; a lost answer is followed by the identical bytes."""
        body = {"seq_id": seq_id, "kind": handle.kind, "payload": handle.payload}
        if handle.sampler_id is None:
            await self._ask("run_operation", body=body, run_id=handle.run_id)
        else:
            await self._ask("sampler_operation", body=body, run_id=handle.run_id, sampler_id=handle.sampler_id)

    async def await_operation(self, run_id: str, seq_id: int) -> Operation:
        """Long-poll an operation until it is terminal."""
        while True:
            operation = await self.get_operation(run_id, seq_id, wait_s=self.settings.wait_s)
            if operation.status in TERMINAL_OPERATION:
                return operation

    def _submit(self, handle: OperationHandle) -> OperationHandle:
        sequence = self._sequences.get(handle.run_id)
        if sequence is None:
            sequence = self._sequences[handle.run_id] = RunSequence(self, handle.run_id, None)
        sequence.submit(handle)
        return handle

    async def _ask(self, route: str, **options: Any) -> dict[str, Any]:
        return await self._send(self._endpoint.request(route, **options))

    async def _send(self, request: Request) -> dict[str, Any]:
        attempts = self._endpoint.policy.start()
        failure: WhitneyError
        while True:
            try:
                response = await self._http.send(self._endpoint.wire(self._http, request))
            except httpx.TransportError as error:
                wait, failure = attempts.wait_s(), self._endpoint.unreachable(request, error)
            else:
                answer = self._endpoint.answer(request, response)
                if not isinstance(answer, Refusal):
                    return answer
                wait, failure = answer.wait_s(attempts), answer.error
            if wait is None:
                raise failure
            await asyncio.sleep(wait)


async def _write(response: httpx.Response, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    with to.open("wb") as file:
        async for chunk in response.aiter_bytes():
            file.write(chunk)
