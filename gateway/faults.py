"""Scripted faults: the network, the machine and a provider's bridge at their worst, on demand and counted.

For tests of clients, of flows and of the gateway itself. A script is a JSON file (`--faults FILE`):

    {"faults": [{"action": "drop_answer", "route": "run_operation", "kind": "optim_step"},
                {"action": "status", "status": 429, "retry_after_s": 1, "route": "get_operation", "nth": 3, "times": 2},
                {"action": "crash", "run": 0, "seq_id": 4, "when": "after"},
                {"action": "drop_loss_config", "kind": "forward_backward", "times": 1000000}]}

What a fault does not name, it matches. Every fault fires `times` times, from its `nth` match on.

On SIGHUP a gateway that was started with `--faults FILE` reads the file anew, and counts matches and runs from 0 again:
so one gateway can go through hundreds of scripts (`{"faults": []}` is none). A file that is wrong is logged with its
line, and what was read before stays. `gateway.launch.GatewayProcess.read_faults_again` sends the signal and waits
until the new script counts.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from whitney.routes import ROUTES
from whitney.types import ForwardPayload, WireRequest
from whitney.types.operation import OperationKind

CRASH_EXIT_CODE = 70

HttpAction = Literal["status", "reset", "slow_answer", "drop_answer"]
ExecutionAction = Literal["slow_operation", "crash", "drop_loss_config"]
When = Literal["before", "after"]
_HTTP_ACTIONS = ("status", "reset", "slow_answer", "drop_answer")


class Fault(BaseModel):
    """One line of a script.

    On HTTP: `status` answers with that status (and Retry-After) instead of handling the request, `reset` breaks the
    connection before it is handled, `slow_answer` waits `delay_s` before, `drop_answer` handles it and then breaks the
    connection. On execution: `slow_operation` waits `delay_s`, `crash` ends the process at once; `when` says whether
    before or after the provider executes it (after: executed, not yet on record); `drop_loss_config` hands a forward or
    forward_backward to the provider without its loss_config, so that the defaults count and nobody is told, as bridges
    to a provider have done.

    `route` is a name of `whitney.routes.ROUTES`; `run` counts the runs since the script was read, from 0. A run that
    began under an earlier script matches no `run`, and every fault that names none.
    """

    model_config = ConfigDict(extra="forbid")

    action: HttpAction | ExecutionAction
    route: str | None = None
    kind: OperationKind | None = None
    run: int | None = Field(None, ge=0)
    seq_id: int | None = Field(None, ge=0)
    when: When = "before"
    nth: int = Field(1, ge=1)
    times: int = Field(1, ge=1)
    status: int = Field(503, ge=400, le=599)
    retry_after_s: float | None = Field(None, ge=0)
    delay_s: float = Field(0.0, ge=0)

    @model_validator(mode="after")
    def _route_is_known_and_fits(self) -> Fault:
        if self.route is not None and self.route not in ROUTES:
            raise ValueError(f"unknown route {self.route!r}; known: {', '.join(sorted(ROUTES))}")
        on_http = self.action in _HTTP_ACTIONS
        if on_http and self.run is not None:
            raise ValueError(f"{self.action} happens on HTTP, where no run number is known: match by route and seq_id")
        if not on_http and self.route is not None:
            raise ValueError(f"{self.action} happens on execution, which has no route: match by kind, run and seq_id")
        return self


class _Script(BaseModel):
    model_config = ConfigDict(extra="forbid")

    faults: list[Fault]


class Faults:
    """The faults still to come. An empty one costs nothing."""

    def __init__(self, faults: Iterable[Fault] = ()) -> None:
        self._runs_begun = 0
        self._take(faults)

    def _take(self, faults: Iterable[Fault]) -> None:
        self._faults = list(faults)
        self._matches = [0] * len(self._faults)
        self._first_run = self._runs_begun

    @classmethod
    def load(cls, path: Path) -> Faults:
        """Read a script.

        Raises:
            ValueError: it cannot be read, or a line is wrong; the line and the field are named.
        """
        try:
            return cls(_Script.model_validate_json(path.read_bytes()).faults)
        except (OSError, ValidationError) as error:
            raise ValueError(f"faults file {path}: {error}") from error

    def read_again(self, path: Path) -> int:
        """Go on with the script that is in `path` now, everything counted from 0; how many faults it has.

        Raises:
            ValueError: as `load`; the script stays what it was.
        """
        self._take(Faults.load(path)._faults)
        return len(self._faults)

    def __bool__(self) -> bool:
        return bool(self._faults)

    def begin_run(self) -> int:
        """The number of a run that begins now; `run` of a fault is this, less those of before its script was read."""
        number, self._runs_begun = self._runs_begun, self._runs_begun + 1
        return number

    def fire(self, actions: tuple[str, ...], **facts: Any) -> Fault | None:
        """The first fault of one of `actions` that matches `facts` and is due; the match is counted."""
        if "run" in facts:
            facts["run"] -= self._first_run
        for index, fault in enumerate(self._faults):
            wanted = {name: getattr(fault, name) for name in facts if getattr(fault, name) is not None}
            if fault.action not in actions or any(facts[name] != value for name, value in wanted.items()):
                continue
            self._matches[index] += 1
            if fault.nth <= self._matches[index] < fault.nth + fault.times:
                return fault
        return None

    async def on_execution(self, when: When, *, run: int, seq_id: int, kind: str) -> None:
        """Slow an operation down, or end the process."""
        fault = self.fire(("slow_operation", "crash"), when=when, run=run, seq_id=seq_id, kind=kind)
        if fault is None:
            return
        if fault.action == "crash":
            os._exit(CRASH_EXIT_CODE)
        await asyncio.sleep(fault.delay_s)

    def on_acceptance(self, payload: WireRequest, *, run: int, seq_id: int, kind: str) -> WireRequest:
        """The payload as it goes on from here: what was sent, or that without its loss_config."""
        if not isinstance(payload, ForwardPayload):
            return payload
        if self.fire(("drop_loss_config",), run=run, seq_id=seq_id, kind=kind) is None:
            return payload
        return payload.model_copy(update={"loss_config": {}})


_OPEN_CONNECTIONS: dict[tuple[str, int], asyncio.Transport] = {}


class BreakableProtocol(H11Protocol):
    """uvicorn's protocol, with its connections findable by the client's address, so that a fault can break one."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        """Remember the connection."""
        super().connection_made(transport)
        self._peer = tuple(transport.get_extra_info("peername")[:2])
        _OPEN_CONNECTIONS[self._peer] = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        super().connection_lost(exc)
        _OPEN_CONNECTIONS.pop(self._peer, None)


class BrokenConnection(Response):
    """An answer that is none: the connection is reset instead."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Break the connection that `scope` came over, and wait until the server has seen it."""
        _OPEN_CONNECTIONS[tuple(scope["client"])].abort()
        while (await receive())["type"] != "http.disconnect":
            pass
