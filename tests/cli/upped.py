"""A `whitney up` in a process of its own, and what is seen of it from outside."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psutil
from own_servers import unconfigured
from prefect_tables import with_tables

from gateway.storage import DataDirectory
from whitney.labels import FLOW_RUN
from whitney.lifecycle import LifecycleClient
from whitney.settings import local_gateway
from whitney.types import Session

PATIENCE_S = 120.0
LOOK_EVERY_S = 0.1
BUSY = 503  # what the server answers while its SQLite file is written to by others
ANY_PORT = ("--port", "0", "--gateway-port", "0")
TRAINING = """
algorithm = "sft"
cycles = {cycles}
batch_size = 4
[model]
name = "tiny"
[data]
source = "addition-1digit"
[evaluation]
enabled = false
"""
T = TypeVar("T")


@dataclass
class Upped:
    """A folder with a `whitney up`."""

    folder: Path
    process: subprocess.Popen[bytes]

    @property
    def log(self) -> Path:
        """What it says."""
        return self.folder / "up.log"

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def notice(self) -> dict[str, Any]:
        notice: dict[str, Any] = json.loads((self.folder / ".whitney" / "up.json").read_text())
        return notice

    def ask(self, path: str, **question: Any) -> Any:
        """A POST to its Prefect server, as the UI sends it."""
        url = f"{self.notice()['prefect_api_url']}/{path}"

        def answered() -> httpx.Response | None:
            answer = httpx.post(url, json=question, timeout=30)
            return None if answer.status_code == httpx.codes.SERVICE_UNAVAILABLE else answer  # its SQLite was busy

        return self.until(answered, f"an answer to {path}").raise_for_status().json()

    def runs(self, deployment: str) -> list[dict[str, Any]]:
        """The flow runs of a deployment, by when they are due."""
        name = deployment.partition("/")[2]
        runs: list[dict[str, Any]] = self.ask(
            "flow_runs/filter", deployments={"name": {"any_": [name]}}, sort="EXPECTED_START_TIME_ASC"
        )
        return runs

    def press_run(self, deployment: str) -> str:
        """The Run button; the flow run's id."""
        flow, _, name = deployment.partition("/")
        url = f"{self.notice()['prefect_api_url']}/deployments/name/{flow}/{name}"
        found = httpx.get(url, timeout=30).raise_for_status().json()
        return str(self.ask(f"deployments/{found['id']}/create_flow_run")["id"])

    def switch_off_schedules(self, deployment: str) -> None:
        """As the switch on the deployment's page does; runs that are not due yet go."""
        flow, _, name = deployment.partition("/")
        api = self.notice()["prefect_api_url"]
        found = httpx.get(f"{api}/deployments/name/{flow}/{name}", timeout=30).raise_for_status().json()
        for schedule in found["schedules"]:
            url = f"{api}/deployments/{found['id']}/schedules/{schedule['id']}"
            deadline = time.monotonic() + 60
            while True:
                answer = httpx.patch(url, json={"active": False}, timeout=30)
                if answer.status_code != BUSY or time.monotonic() > deadline:
                    break
                time.sleep(1)
            answer.raise_for_status()

    def state(self, flow_run_id: str) -> dict[str, Any]:
        url = f"{self.notice()['prefect_api_url']}/flow_runs/{flow_run_id}"
        state: dict[str, Any] = httpx.get(url, timeout=30).raise_for_status().json()["state"]
        return state

    def whitney(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command in the same folder, which is told of nothing."""
        command = [sys.executable, "-m", "cli", *arguments]
        environment = environment_of(self.folder)
        return subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE_S
        )

    def sessions(self, flow_run_id: str) -> list[Session]:
        """A flow run's open sessions, on the gateway that it has started."""
        settings = local_gateway(self.folder / "whitney")
        assert settings is not None
        with LifecycleClient(settings, deadline_s=20.0) as client:
            return client.open_sessions((FLOW_RUN, flow_run_id))

    def until(self, look: Callable[[], T | None], what: str) -> T:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if (answer := look()) is not None:
                return answer
            time.sleep(LOOK_EVERY_S)
        worker = self.folder / ".whitney" / "worker.log"
        tail = worker.read_text(errors="replace")[-3000:] if worker.exists() else ""
        raise AssertionError(f"waited {PATIENCE_S:g} s in vain for {what}\n{self.said()}\n{tail}")

    def ended(self, flow_run_id: str) -> dict[str, Any]:
        """The state of a flow run, once it has ended."""

        def look() -> dict[str, Any] | None:
            state = self.state(flow_run_id)
            return state if state["type"] in {"COMPLETED", "FAILED", "CRASHED", "CANCELLED"} else None

        return self.until(look, f"{flow_run_id} to end")

    def at_work(self, flow_run_id: str) -> None:
        """Return once it has opened a session."""
        self.until(lambda: self.sessions(flow_run_id) or None, f"{flow_run_id} to open a session")

    def flow_processes(self) -> list[psutil.Process]:
        """The processes of flow runs."""
        below = psutil.Process(self.process.pid).children(recursive=True)
        return [child for child in below if "prefect.engine" in child.cmdline()]


def environment_of(folder: Path) -> dict[str, str]:
    """Nothing is configured, the servers' data are in the folder, and nobody waits longer than need be."""
    with_tables(folder / ".whitney" / "prefect")
    nothing = {name: value for name, value in unconfigured(folder).items() if "DATABASE" not in name}
    return nothing | {
        "WHITNEY_DATA_DIR": str(folder / "whitney"),
        "PREFECT_WORKER_QUERY_SECONDS": "1",
        "PREFECT_SERVER_DEPLOYMENTS_CONCURRENCY_SLOT_WAIT_SECONDS": "1",
    }


def start_up(folder: Path, *arguments: str) -> Upped:
    """Start it, and do not wait."""
    with (folder / "up.log").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "cli", "up", "--model", "tiny", *ANY_PORT, *arguments],
            cwd=folder,
            env=environment_of(folder),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return Upped(folder, process)


@contextmanager
def whitney_up(folder: Path, *arguments: str) -> Iterator[Upped]:
    """It is up while the block runs. What the block has not ended is killed."""
    up = start_up(folder, *arguments)
    try:
        up.until(
            lambda: True if "Ctrl-C stops everything" in up.said() or up.process.poll() is not None else None, "up"
        )
        assert up.process.poll() is None, up.said()
        yield up
    finally:
        if up.process.poll() is None:
            up.process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                up.process.wait(90)
            for one in [*processes_of(folder), up.process]:
                with suppress(psutil.NoSuchProcess):
                    one.kill()
            up.process.wait()


def processes_of(folder: Path) -> list[psutil.Process]:
    """Every process that works in the folder, or has it in its environment."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            if process.environ().get("WHITNEY_DATA_DIR") == str(folder / "whitney"):
                found.append(process)
    return found


def no_process_is_left(up: Upped) -> None:
    """Assert it; a process that has been told to end with its parent takes a moment."""
    up.until(lambda: True if not processes_of(up.folder) else None, f"{processes_of(up.folder)} to end")


def statuses_in_the_ledger(folder: Path) -> list[str]:
    """Of every session that the gateway of the folder has on record, asked of its file: it does not run any more."""
    ledger = DataDirectory(folder / "whitney").ledger
    with sqlite3.connect(f"file:{ledger}?mode=ro", uri=True) as connection:
        return [status for (status,) in connection.execute("SELECT status FROM sessions")]


def write_training(folder: Path, name: str, cycles: int) -> Path:
    path = folder / f"{name}.toml"
    path.write_text(TRAINING.format(cycles=cycles))
    return path
