"""Sessions are opened late, beaten while they live, and closed whatever happens.

Opened late: a Retry whose blocks are all adopted, and a run whose input is wrong, allocate nothing.
Closed always: on the normal path by `close`, on an exception by `abandon`, and — when this process is gone — by the
hook of `flows.hooks`.
"""

from __future__ import annotations

import asyncio
import secrets
from contextlib import AsyncExitStack
from uuid import UUID

from prefect.client.orchestration import get_client

from flows.cancelling import unheeded
from flows.closing import end_sessions
from flows.durable.run_spec import RunSpec
from flows.durable.slots import Slots
from tasks.events import emit
from tasks.run import Meter, Run
from tasks.session import close_session, create_run, create_session, finish_run, wait_terminal
from whitney.client import WhitneyClient
from whitney.heartbeat import beat
from whitney.labels import ATTEMPT, CREATE_KEY, FLOW_RUN, PROJECT, ROOT_ATTEMPT, ROOT_FLOW_RUN, SLOTS

POLICY = "policy"


class SessionScope:
    """The open sessions of one attempt with their runs, and the duty to end both."""

    __slots__ = (
        "_client",
        "_lives",
        "_requested",
        "_sessions",
        "_slots",
        "_stack",
        "attempt",
        "create_key",
        "flow_run_id",
        "meter",
        "project",
        "root_id",
        "runs",
    )

    def __init__(self, client: WhitneyClient, slots: Slots, *, flow_run_id: str, root_id: str, attempt: int) -> None:
        self._client = client
        self._slots = slots
        self._stack = AsyncExitStack()
        self._requested = False
        self._lives = 1
        self._sessions: dict[str, str] = {}
        self.flow_run_id = flow_run_id
        self.root_id = root_id
        self.attempt = attempt
        # Names what this process creates: asked for twice, it is still one. Not the attempt's alone: a run that was
        # suspended and resumed is the same attempt in another process, and must not be handed a session that is closed.
        self.create_key = f"{flow_run_id}:{attempt}:{secrets.token_hex(4)}"
        self.project: str | None = None
        self.runs: dict[str, Run] = {}
        self.meter = Meter()

    async def open_run(self, name: str, spec: RunSpec, *, session: str = "main") -> Run:
        """Create a run under `name` ("policy", "teacher", …), on a session that is opened if it is not open yet."""
        session_id = self._sessions.get(session) or await self._open_session(session)
        # The policy's key is the attempt's own; others are told apart by what they are for. Keys count per session.
        attempt = f"{self.flow_run_id}:{self.attempt}"
        create_key = attempt if name == POLICY else f"{attempt}:{name}"
        run_id = await create_run(self._client, session_id, spec.request(create_key), name)
        run = Run(self._client, session_id=session_id, run_id=run_id, meter=self.meter)
        self.runs[name] = run
        return run

    async def _open_session(self, name: str) -> str:
        """Open a session and keep it alive. All of an attempt's sessions carry its labels, so one search finds them.

        Before the first all slots are taken that the attempt needs.
        """
        await self._slots.take()
        labels = {
            FLOW_RUN: self.flow_run_id,
            ROOT_FLOW_RUN: self.root_id,
            ATTEMPT: str(self.attempt),
            ROOT_ATTEMPT: str(await self._root_attempt()),
            CREATE_KEY: self._session_key,
            **({PROJECT: self.project} if self.project else {}),
            **({SLOTS: lease} if (lease := self._slots.lease) else {}),
        }
        self._requested = True
        emit("session_requested")
        create_key = self._session_key if name == "main" else f"{self._session_key}:{name}"
        session = await create_session(self._client, create_key, labels)
        self._sessions[name] = session.session_id
        emit("session_created", session_id=session.session_id)
        await self._stack.enter_async_context(beat(self._client, session.session_id, ttl_s=session.ttl_s))
        await self._show_sessions()
        return session.session_id

    @property
    def _session_key(self) -> str:
        """What names the sessions that are open together: the process, and how often it has started over."""
        return self.create_key if self._lives == 1 else f"{self.create_key}:{self._lives}"

    async def start_over(self) -> None:
        """End what is open in the middle of its work; what is opened next is a session of its own.

        Raises:
            RuntimeError: it could not be closed, and nothing is opened beside it.
        """
        await self.abandon()
        if self._requested:
            raise RuntimeError("a session could not be closed, see above; the run ends here, and Retry goes on")
        self.runs.clear()
        self.meter.take()  # on no block's record: it is redone
        self._lives += 1

    async def _root_attempt(self) -> int:
        """The run count of the top-level flow run: asked for late, where a session is really opened."""
        if self.root_id == self.flow_run_id:
            return self.attempt
        async with get_client() as api:
            return (await api.read_flow_run(UUID(self.root_id))).run_count

    async def _show_sessions(self) -> None:
        """A label on the flow run, for people: which sessions an attempt had. Nothing here ever reads it."""
        async with get_client() as api:
            await api.update_flow_run_labels(
                UUID(self.flow_run_id), {f"whitney.session.{self.attempt}": ",".join(self._sessions.values())}
            )

    async def close(self) -> None:
        """The normal end: finish every run, wait until all are terminal, close the sessions."""
        if not self._sessions:
            return
        for name, run in self.runs.items():
            await finish_run(self._client, run.run_id, name)
        for name, run in self.runs.items():
            await wait_terminal(self._client, run.run_id, name)
        await self._stack.aclose()
        for session_id in self._sessions.values():
            await close_session(self._client, session_id)
            emit("session_closed", session_id=session_id)
        self._sessions, self._requested = {}, False
        await self._slots.give_back()

    async def abandon(self) -> None:
        """The bad end, in the fixed order: cancel the runs, poll until they are terminal, then close the sessions.

        Found by label, not by id: the answer that held the id may be what was lost. Plain client calls, not tasks:
        Prefect may be what failed. Whatever goes wrong here the hook does again.
        """
        if not self._requested:
            await self._slots.give_back()
            return
        with unheeded():
            await self._stack.aclose()
            closed = await asyncio.to_thread(
                end_sessions,
                self._client.settings,
                self.flow_run_id,
                label=(CREATE_KEY, self._session_key),
                attempts_up_to=self.attempt,
            )
            if closed:
                self._sessions, self._requested = {}, False
                await self._slots.give_back()
            else:
                await self._slots.stop_renewing()
