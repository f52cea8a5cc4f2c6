"""What `whitney up` is made of: how each part is started, when it is ready, and how it is stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from cli.failures import CommandFailedError
from cli.prefect_server import PrefectServerError, prefect_server, tail, wait_until_up
from cli.worker import CLOSING_S, HOOKS_S, READY
from gateway.launch import Launch, LaunchError, close_stdin
from tasks.python_process import command

STARTUP_S = 180.0
GATEWAY_STOP_S = 20.0
WORKER_STOP_S = CLOSING_S + HOOKS_S + 10.0
LOOK_EVERY_S = 0.1

Process = subprocess.Popen[bytes]


class PartError(CommandFailedError):
    """A part did not come up; the message says why, and names its log."""


@dataclass(frozen=True, slots=True)
class Part:
    """One process, with what it has started in turn.

    `spawn` starts it for as long as a block runs, without waiting for it; `wait` returns once it is ready, or raises
    PartError.
    """

    name: str
    log: Path
    spawn: Callable[[], AbstractContextManager[Process]]
    wait: Callable[[Process], None]


def server_part(environment: dict[str, str], log: Path) -> Part:
    """The Prefect server."""

    def wait(process: Process) -> None:
        try:
            wait_until_up(process, environment, log, STARTUP_S)
        except PrefectServerError as error:
            raise PartError(str(error)) from error

    return Part("the Prefect server", log, lambda: prefect_server(environment, log), wait)


def gateway_part(data_dir: Path, models: Sequence[str], port: int) -> Part:
    """The embedded gateway. Port 0 is any; started again it has the one that it had."""
    launch = Launch(data_dir, ("--model", *models), STARTUP_S)

    @contextmanager
    def spawn() -> Iterator[Process]:
        process = launch.spawn(port)
        try:
            yield process
        finally:
            end(process, GATEWAY_STOP_S)
            close_stdin(process)

    def wait(process: Process) -> None:
        nonlocal port
        try:
            port = urlsplit(launch.wait_until_listening(process).base_url).port or port
        except LaunchError as error:
            raise PartError(str(error)) from error

    return Part("the gateway", launch.log, spawn, wait)


def worker_part(environment: dict[str, str], limit: int | None, log: Path) -> Part:
    """The worker; its working directory is this process's."""
    worker = command("cli", "worker", *([] if limit is None else ["--limit", str(limit)]))

    @contextmanager
    def spawn() -> Iterator[Process]:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as output:
            process = subprocess.Popen(
                command("gateway.parent", *worker),  # it ends with this process, however that ends
                env=os.environ | environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a terminal's Ctrl-C is told to it in its turn
            )
        try:
            yield process
        finally:
            end(process, WORKER_STOP_S)

    def wait(process: Process) -> None:
        deadline = time.monotonic() + STARTUP_S
        while READY not in log.read_text(encoding="utf-8", errors="replace"):
            if process.poll() is not None:
                raise PartError(f"the worker ended with status {process.returncode}; its log ends:\n{tail(log)}")
            if time.monotonic() > deadline:
                raise PartError(f"the worker is not ready after {STARTUP_S:g} s; its log ends:\n{tail(log)}")
            time.sleep(LOOK_EVERY_S)

    return Part("the worker", log, spawn, wait)


def end(process: Process, patience_s: float) -> None:
    """Ask a process to stop; kill it, and what is left of its group, when it does not."""
    if process.poll() is None:
        process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(patience_s)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
