"""Training flows as deployments, in a process of their own, and the buttons of the Prefect UI pressed on them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID, uuid4

import httpx
import psutil
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.exceptions import ObjectNotFound

from gateway.launch import GatewayProcess, start_gateway
from whitney.client import WhitneyClient
from whitney.labels import FLOW_RUN
from whitney.settings import WhitneySettings
from whitney.types import Session

PATIENCE_S = 120.0
LOOK_EVERY_S = 0.1
T = TypeVar("T")

# What the UI's Retry button posts; test_retry_in_the_browser.py reads it off the browser's own request.
RETRY = {"state": {"type": "SCHEDULED", "name": "AwaitingRetry", "message": "Retry from the UI"}, "force": True}


class FaultyGateway:
    """A deterministic gateway with the tiny model; its faults change while it runs, and it may die and come back."""

    def __init__(self, folder: Path, stack: ExitStack, *options: str) -> None:
        self._options = options
        self._stack = stack
        self.folder = folder
        self.process = self._start(port=0)

    def _start(self, port: int) -> GatewayProcess:
        return self._stack.enter_context(
            start_gateway(self.folder, port=port, extra_args=["--deterministic", *self._options], faults=[])
        )

    @property
    def settings(self) -> WhitneySettings:
        """How to reach it."""
        return WhitneySettings(base_url=self.process.base_url, api_key=self.process.api_key)

    @property
    def environment(self) -> dict[str, str]:
        """The variables that name it."""
        return {"WHITNEY_BASE_URL": self.process.base_url, "WHITNEY_API_KEY": self.process.api_key}

    def fail(self, *faults: dict[str, Any]) -> None:
        """These faults from now on, and no others."""
        self.process.set_faults(*faults)

    def start_again(self) -> None:
        """After its death: on the same port and data, without a fault."""
        self.process = self._start(port=int(self.process.base_url.rsplit(":", 1)[1]))

    async def sessions(self, flow_run_id: UUID) -> list[Session]:
        """A flow run's sessions, of all attempts, with their runs."""
        async with WhitneyClient(self.settings) as whitney:
            return await whitney.list_sessions(label=(FLOW_RUN, str(flow_run_id)))

    async def all_closed(self, flow_run_id: UUID) -> list[Session]:
        """The same, once none is open any more: a hook may still be at it when the flow run has ended."""

        async def look() -> list[Session] | None:
            sessions = await self.sessions(flow_run_id)
            return sessions if all(session.status == "closed" for session in sessions) else None

        return await until(look, "the sessions to close")


@dataclass(frozen=True, slots=True)
class Served:
    """Deployments that a runner polls for; `name` is that of each, behind its flow's."""

    name: str
    api_url: str
    runner: subprocess.Popen[bytes]
    log: Path

    async def press_run(self, algorithm: str, config: Any) -> UUID:
        """The Run button: a flow run of the deployment, with a configuration."""
        async with get_client() as api:

            async def find() -> Any:
                with suppress(ObjectNotFound):
                    return await api.read_deployment_by_name(f"{algorithm}/{self.name}")
                return None

            deployment = await until(find, f"the deployment {algorithm}/{self.name}", self.log)
            parameters = {"config": config.model_dump(mode="json")}
            return (await api.create_flow_run_from_deployment(deployment.id, parameters=parameters)).id

    async def press_retry(self, flow_run_id: UUID, times: int = 1) -> list[str]:
        """The Retry button, `times` times at once; what the server answered to each (ACCEPT, REJECT, …)."""
        url = f"{self.api_url}/flow_runs/{flow_run_id}/set_state"
        async with httpx.AsyncClient() as http:
            answers = await asyncio.gather(*(http.post(url, json=RETRY) for _ in range(times)))
        return [answer.raise_for_status().json()["status"] for answer in answers]

    async def ended(self, flow_run_id: UUID, attempt: int = 1) -> FlowRun:
        """The flow run, once its attempt of that number (or a later one) has ended."""

        async def look() -> FlowRun | None:
            run = await read(flow_run_id)
            return run if run.state is not None and run.state.is_final() and run.run_count >= attempt else None

        return await until(look, f"attempt {attempt} of {flow_run_id} to end", self.log)


@contextmanager
def serving(
    *algorithms: str, api_url: str, folder: Path, name: str = "", environment: dict[str, str] | None = None
) -> Iterator[Served]:
    """Serve flows in a process of its own; two runners of one `name` share its deployments, as two workers would."""
    name = name or f"served-{uuid4().hex[:8]}"
    log = folder / f"runner-{uuid4().hex[:8]}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("serve_flows.py")), name, *algorithms],
            cwd=Path(__file__).resolve().parents[2],
            stdout=output,
            stderr=subprocess.STDOUT,
            env={
                **os.environ,
                "PREFECT_API_URL": api_url,
                "PREFECT_RUNNER_POLL_FREQUENCY": "1",
                **(environment or {}),
            },
            start_new_session=True,
        )
    try:
        yield Served(name, api_url, process, log)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def kill_flow_runs_of(*runners: Served) -> None:
    """SIGKILL every process of a flow run, and no runner."""
    for runner in runners:
        for child in psutil.Process(runner.runner.pid).children(recursive=True):
            if any(word == "prefect.engine" or "spawn_main" in word for word in child.cmdline()):
                child.kill()


def kill_with_flow_runs(runner: Served) -> None:
    """SIGKILL a runner and what it runs; the runner first, for it must not see its flow run die."""
    process = psutil.Process(runner.runner.pid)
    for one in (process, *process.children(recursive=True)):
        one.kill()
    runner.runner.wait()


async def read(flow_run_id: UUID) -> FlowRun:
    """A flow run as the server has it."""
    async with get_client() as api:
        return await api.read_flow_run(flow_run_id)


def state_of(run: FlowRun) -> StateType:
    """The type of a flow run's state."""
    assert run.state is not None
    return run.state.type


async def until(ask: Callable[[], Awaitable[T | None]], what: str, log: Path | None = None) -> T:
    """The first answer that is not None, asked for again and again; the runner's log is shown when it does not come."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        answer = await ask()
        if answer is not None:
            return answer
        await asyncio.sleep(LOOK_EVERY_S)
    tail = log.read_text(errors="replace")[-4000:] if log else ""
    raise AssertionError(f"waited {PATIENCE_S:g} s in vain for {what}\n{tail}")
