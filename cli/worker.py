"""`whitney worker`: runs deployments on this machine, and lets them end in order when it is told to stop."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from cli.failures import CommandFailedError, UsageError
from cli.prefect_setup import configure
from deployments.names import HEARTBEAT, WORK_POOL
from tasks.user_modules import search_this_project

if TYPE_CHECKING:
    from cli.orderly_worker import OrderlyWorker

CLOSING_S = 25.0
"""How long a flow run has to cancel its runs and close its session (20 s at most), before it is killed."""

HOOKS_S = 25.0
"""How long the hook of one that was killed has for the same."""

READY = "whitney worker is ready"

SETTINGS = {
    **HEARTBEAT,
    "PREFECT_WORKER_QUERY_SECONDS": "5",
}
"""Environment of the worker and of its flow runs, where it says nothing else."""


def worker(
    *,
    pool: str = WORK_POOL,
    limit: Annotated[int | None, Parameter(name=("--limit", "-l"))] = None,
    name: str | None = None,
) -> int:
    """Run what is deployed to a work pool, on this machine, until Ctrl-C.

    Like `prefect worker start` of a process work pool, which it makes if it is missing. Told to stop it takes no more
    runs, and has those at work close their sessions; Prefect's own worker kills them, and their sessions stay open. A
    second Ctrl-C ends it at once.

    Parameters
    ----------
    pool
        The work pool.
    limit
        How many runs at once; default: as many as are due.
    name
        How Prefect's pages call it; default: of this machine and process.
    """
    if limit is not None and limit < 1:
        raise UsageError(f"--limit {limit}: must be at least 1, the runs at once")
    for variable, value in SETTINGS.items():
        os.environ.setdefault(variable, value)
    search_this_project(os.environ)
    configure(verbose=True)
    from cli.prefect_answers import is_up
    from cli.prefect_api import known_prefect

    with known_prefect() as prefect:
        if prefect is None:
            raise UsageError(
                "no Prefect server: start one with `whitney up`, or set PREFECT_API_URL to the one that has the "
                "deployments"
            )
        if not is_up(prefect.api_url):
            raise UsageError(f"Prefect at {prefect.shown} does not answer: start it, or mend PREFECT_API_URL")
        return asyncio.run(_work(pool, limit, name or f"{os.uname().nodename} {os.getpid()}"))


async def _work(pool: str, limit: int | None, name: str) -> int:
    """Poll until a signal comes; 0, for that is how a worker ends.

    Raises:
        CommandFailedError: the pool is for other workers, or Prefect has not answered for long.
    """
    from cli.orderly_worker import OrderlyWorker

    worker = OrderlyWorker(work_pool_name=pool, limit=limit, name=name)
    working = asyncio.ensure_future(worker.start(printer=_say_ready))
    stop = _Stop(worker, working)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # `nohup`
            loop.add_signal_handler(number, stop.heard)
    try:
        await working
    except asyncio.CancelledError:
        print("stopped", flush=True)
    except Exception as error:
        if not stop.asked:
            raise CommandFailedError(f"the worker cannot go on: {error}") from error
    return 0


def _say_ready(line: str) -> None:
    print(f"{READY}: {line}" if line.endswith("started!") else line, flush=True)


class _Stop:
    """The first signal lets the runs end in order, the second ends them as Prefect does."""

    def __init__(self, worker: OrderlyWorker, working: asyncio.Future[None]) -> None:
        self._worker = worker
        self._working = working
        self._ending: asyncio.Task[None] | None = None

    @property
    def asked(self) -> bool:
        """Whether a signal has come."""
        return self._ending is not None

    def heard(self) -> None:
        """A signal has come."""
        if self._ending is None:
            with suppress(OSError):  # the terminal has been closed
                print("stopping: runs that are at work close their sessions; once more ends them at once", flush=True)
            self._ending = asyncio.ensure_future(self._end())
        else:
            self._working.cancel()

    async def _end(self) -> None:
        try:
            await self._worker.wind_up(closing_s=CLOSING_S, hooks_s=HOOKS_S)
        finally:
            self._working.cancel()
