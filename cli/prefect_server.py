"""A Prefect server of the project's own: its database in the project, on loopback, stopped with the command."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import URLError
from urllib.request import urlopen

from filelock import FileLock, Timeout

from cli.failures import CommandFailedError
from cli.prefect_setup import deliver
from cli.run_data import PrefectAt, run_data
from cli.terminal import Say
from cli.up_notice import RunningUp
from tasks.prefect_server import SERVER_SETTINGS
from tasks.python_process import command

if TYPE_CHECKING:
    from prefect.settings.legacy import Setting

HOST = "127.0.0.1"
STANDARD_PORT = 4200
STARTUP_S = 180.0
STOP_S = 15.0
DELIVERY_S = 30.0
ENDING_S = 20.0
LOOK_EVERY_S = 0.25
LOG_LINES = 5


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


@contextmanager
def prefect_api(say: Say, former: PrefectAt | None = None) -> Iterator[PrefectAt]:
    """Prefect's API for as long as the block runs: the one that is configured, else a server for this run.

    `former` is what an earlier attempt of the run had. If that was a server of its own, it is started on its home
    again, whatever is configured: the flow run is there, and nowhere else.

    Prefect would start a temporary one itself, but in the terminal's process group: Ctrl-C would end it before the run
    that needs it to close its session, and every request of that run would wait for a server that is gone.

    A server of the run's own has no UI as far as this process is told: a link to a page in it is dead when it is
    followed. Persisted results lie in its home, too: without them its database is worth nothing.

    Raises:
        PrefectServerError: there is none, or it does not answer.
    """
    from prefect.settings import PREFECT_API_URL, temporary_settings

    if former is not None and former.home is not None:
        with _server_of_the_run(say, former) as prefect:
            yield prefect
    elif configured := PREFECT_API_URL.value():
        yield PrefectAt(configured)
    elif former is not None:
        if not is_up(former.api_url):
            raise PrefectServerError(f"{former.shown}, the run's Prefect API, does not answer: start it again")
        with temporary_settings({PREFECT_API_URL: former.api_url}):
            yield former
    else:
        with known_prefect() as known:
            if known is not None:
                say(f"Using the Prefect server of `whitney up`, {known.shown}")
                yield known
                return
        with _server_of_the_run(say) as prefect:
            yield prefect


@contextmanager
def known_prefect() -> Iterator[PrefectAt | None]:
    """Prefect's API where there is one already: the one that is configured, else that of `whitney up` in this folder.

    While the block runs, Prefect's own client finds it, too.
    """
    from prefect.settings import PREFECT_API_URL, temporary_settings

    if configured := PREFECT_API_URL.value():
        yield PrefectAt(configured)
    elif up := running_up():
        with temporary_settings(_settings_of(up.prefect)):
            yield up.prefect
    else:
        yield None


def running_up() -> RunningUp | None:
    """The `whitney up` of this project folder; None where none runs.

    A notice that was left behind is told by its process, which is gone, and by the server at its address, which is none
    or another's.
    """
    up = RunningUp.read()
    if up is None or up.prefect.home is None:
        return up
    return up if home_of_server(up.prefect_api_url) == up.prefect.home else None


def _settings_of(prefect: PrefectAt) -> dict[Setting, Any]:
    """What a process that uses a server of the project's has to know of it: where it is, its pages, its results."""
    from prefect.settings import PREFECT_API_URL, PREFECT_LOCAL_STORAGE_PATH, PREFECT_UI_URL

    settings: dict[Setting, Any] = {
        PREFECT_API_URL: prefect.api_url,
        PREFECT_UI_URL: prefect.api_url.removesuffix("/api"),
    }
    return settings | ({PREFECT_LOCAL_STORAGE_PATH: prefect.home / "storage"} if prefect.home else {})


@contextmanager
def _server_of_the_run(say: Say, former: PrefectAt | None = None) -> Iterator[PrefectAt]:
    from prefect.settings import PREFECT_API_URL, PREFECT_LOCAL_STORAGE_PATH, PREFECT_UI_URL, temporary_settings

    with ExitStack() as stack:
        home = stack.enter_context(run_data("prefect", former.home if former else None)).resolve()
        if former is not None and (up := running_up()) and up.prefect.home == home:
            url = up.prefect_api_url
        elif former is not None and not _ends(former):
            url = former.api_url  # `whitney demo` leaves its server up, for its pages
        else:
            environment, log = project_server_environment(home, free_port()), home / "server.log"
            url = environment["PREFECT_API_URL"]
            if former is None:
                say("Starting a Prefect server for this run (set PREFECT_API_URL to use one that stays)")
            else:
                say(f"Starting the Prefect server of this run (its home is {home})")
            wait_until_up(stack.enter_context(prefect_server(environment, log)), environment, log)
        settings = {PREFECT_API_URL: url, PREFECT_LOCAL_STORAGE_PATH: home / "storage", PREFECT_UI_URL: ""}
        stack.enter_context(temporary_settings(settings))
        yield PrefectAt(url, home)


def _ends(server: PrefectAt) -> bool:
    """Whether the run's server has ended; one whose command was killed takes a moment to."""
    deadline = time.monotonic() + ENDING_S
    while home_of_server(server.api_url) == server.home:
        if time.monotonic() > deadline:
            return False
        time.sleep(LOOK_EVERY_S)
    return True


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
                f"the Prefect server at {url} ended with status {process.returncode}; if another program has just "
                f"taken its port, start again. Its log ends:\n{tail(log)}"
            )
        if time.monotonic() > deadline:
            raise PrefectServerError(
                f"the Prefect server at {url} does not answer after {timeout_s:g} s; its log ends:\n{tail(log)}"
            )
        time.sleep(LOOK_EVERY_S)


def home_of_server(api_url: str) -> Path | None:
    """The PREFECT_HOME of the server that answers there; None where none does."""
    try:
        with urlopen(f"{api_url}/admin/settings", timeout=5) as answer:
            return Path(json.load(answer)["home"])
    except (URLError, OSError, ValueError, KeyError):
        return None


def is_up(api_url: str) -> bool:
    """Whether a Prefect API answers there."""
    try:
        with urlopen(f"{api_url}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except (URLError, OSError, ValueError):
        return False


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
