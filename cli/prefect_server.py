"""A Prefect server of the project's own: its database in the project, on loopback, stopped with the command."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from cli.failures import CommandFailedError
from cli.prefect_answers import home_of_server
from cli.prefect_setup import deliver
from tasks.prefect_server import SERVER_SETTINGS
from tasks.python_process import command

HOST = "127.0.0.1"
STANDARD_PORT = 4200
STARTUP_S = 180.0
STOP_S = 15.0
DELIVERY_S = 30.0
LOOK_EVERY_S = 0.25
LOG_LINES = 5
ROOM_MB = 20


class PrefectServerError(CommandFailedError):
    """The Prefect server did not come up; the message names its log."""


def project_server_environment(home: Path, port: int) -> dict[str, str]:
    """Variables for the server and for every process that is to use it. Nothing of the user's own Prefect is touched.

    The UI asks the API where the *settings* say it is, so the port must be there as well as on the command line.
    """
    return SERVER_SETTINGS | {
        "PREFECT_HOME": str(home.resolve()),
        "PREFECT_API_URL": f"http://{HOST}:{port}/api",
        "PREFECT_SERVER_API_HOST": HOST,
        "PREFECT_SERVER_API_PORT": str(port),
    }


def free_port(*preferred: int) -> int:
    """The first of the preferred ports that is free, or any other when none is.

    Nothing holds it until the server does: two commands that are started together may be told the same one.
    """
    for port in (*preferred, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise PrefectServerError(f"no free port on {HOST}")


@contextmanager
def prefect_server(environment: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start a server, and stop it when the block ends. It is not waited for here: see `wait_until_up`.

    A session of its own keeps a terminal's Ctrl-C from it: runs that are being closed still need their server. On
    Linux it also ends when this process is killed, and when the calling thread ends. Before it is stopped it is sent
    what this process still has for it.

    Raises:
        PrefectServerError: another command has a server on the same home: two would share a database.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with _sole_server_of(Path(environment["PREFECT_HOME"])), _started(environment, log) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                deliver(DELIVERY_S)


@contextmanager
def _sole_server_of(home: Path) -> Iterator[None]:
    home.mkdir(parents=True, exist_ok=True)
    lock = FileLock(home / "server.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise PrefectServerError(
            f"another command runs a Prefect server on {home} (`whitney up`, `whitney demo`, or a run that is gone on "
            "with): wait for its end, or stop it"
        ) from None
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _started(environment: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    server = command("prefect", "server", "start", "--host", HOST, "--port", environment["PREFECT_SERVER_API_PORT"])
    with log.open("wb") as output:
        process = subprocess.Popen(
            command("gateway.parent", *server),
            env=os.environ | environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        _stop(process)


def wait_until_up(
    process: subprocess.Popen[bytes], environment: dict[str, str], log: Path, timeout_s: float = STARTUP_S
) -> None:
    """Return once the API answers, and it is this server's: a run on another's is lost when that one ends.

    Raises:
        PrefectServerError: the server has ended, or does not answer in time.
    """
    url, home = environment["PREFECT_API_URL"], Path(environment["PREFECT_HOME"])
    deadline = time.monotonic() + timeout_s
    while home_of_server(url) != home:
        if process.poll() is not None:
            raise PrefectServerError(
                f"the Prefect server at {url} ended with status {process.returncode}; {_why_it_ended(home)}. Its log "
                f"ends:\n{tail(log)}"
            )
        if time.monotonic() > deadline:
            raise PrefectServerError(
                f"the Prefect server at {url} does not answer after {timeout_s:g} s; its log ends:\n{tail(log)}"
            )
        time.sleep(LOOK_EVERY_S)


def _why_it_ended(home: Path) -> str:
    free_mb = shutil.disk_usage(home).free // 10**6
    if free_mb < ROOM_MB:
        return f"only {free_mb} MB are free in {home}, where its database is: make room"
    return "if another program has just taken its port, start again"


def tail(log: Path) -> str:
    """The last lines of a log."""
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_LINES:])


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the server and whatever it has started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(STOP_S)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
