"""Which Prefect API a command uses: the one that is configured, that of `whitney up`, or a server for the run alone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from cli.prefect_answers import home_of_server, is_up
from cli.prefect_server import PrefectServerError, free_port, prefect_server, project_server_environment, wait_until_up
from cli.run_data import PrefectAt, run_data
from cli.terminal import Say
from cli.up_notice import RunningUp

if TYPE_CHECKING:
    from prefect.settings.legacy import Setting

ENDING_S = 20.0
LOOK_EVERY_S = 0.25


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
                say(
                    "Starting a Prefect server for this run (`whitney up` in another terminal keeps one, and its pages)"
                )
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
