"""Prefect in the terminal's process: set up before it is imported, kept quiet, its pages found."""

from __future__ import annotations

import logging
import os
import sys
import time
from typing import Any

from tasks.prefect_server import SERVER_SETTINGS
from tasks.userinfo import without_userinfo


def configure(*, verbose: bool) -> None:
    """Settings that Prefect reads once, when it is imported; what the user has set stays.

    Without `verbose` the terminal shows Prefect's own warnings only. What flow and task runs log, tracebacks included,
    goes where it always goes: to the Prefect API, and its UI.
    """
    for name, value in SERVER_SETTINGS.items():  # for the temporary server, if there is to be one
        os.environ.setdefault(name, value)
    # A server that starts beside a busy training engine takes longer than Prefect's default of 20 s.
    os.environ.setdefault("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "120")
    if not verbose:
        os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "WARNING")
        for name in ("prefect.flow_runs", "prefect.task_runs"):
            logging.getLogger(name).propagate = False  # they have a handler of their own, the API's
        logging.getLogger("EventsWorker").setLevel(logging.ERROR)  # at the end it warns that it has not finished yet


def flow_run_page(flow_run_id: str | None) -> str | None:
    """The address of a flow run in the Prefect UI; None when there is no lasting server to show it.

    Without a password that may stand in the server's: a page is shown to everybody, and a browser asks for one.
    """
    from prefect.settings import PREFECT_API_URL
    from prefect.utilities.urls import url_for

    if flow_run_id is None or not PREFECT_API_URL.value():
        return None
    page = url_for("flow-run", obj_id=flow_run_id)
    return page and without_userinfo(page)


def deliver(timeout_s: float) -> None:
    """Send the Prefect API what this process still has for it: logs and events. No more can be sent after it.

    Prefect does so in an exit handler, with no limit of time: where the server has been stopped by then, the process
    stays for more than a minute, to say at last that it could not reach it.
    """
    deadline = time.monotonic() + timeout_s
    for module, worker in (("prefect.logging.handlers", "APILogWorker"), ("prefect.events.worker", "EventsWorker")):
        if module in sys.modules:  # not imported: nothing was sent
            getattr(sys.modules[module], worker).drain_all(timeout=max(0.0, deadline - time.monotonic()))


def stop_temporary_server() -> None:
    """Stop the server that Prefect starts where no PREFECT_API_URL is set, as its exit handler would."""
    for server in _temporary_servers():
        server.stop()


def kill_temporary_server() -> None:
    """The same without waiting."""
    for server in _temporary_servers():
        if server.server_process is not None:
            server.server_process.kill()


def _temporary_servers() -> list[Any]:
    """Prefect has no public way to ask for them. Empty where its server was never imported: then there is none."""
    module = sys.modules.get("prefect.server.api.server")
    return [] if module is None else list(module.SubprocessASGIServer._instances.values())
