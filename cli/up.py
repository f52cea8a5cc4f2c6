"""`whitney up`: Prefect server, gateway and worker for one machine, and nothing of them left running at the end."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Annotated

from cyclopts import Parameter
from filelock import FileLock, Timeout

from cli.failures import CommandFailedError, UsageError
from cli.run_data import PROJECT_DATA
from cli.terminal import Say, sayer
from cli.up_keeper import Kept, adopt_orphans, end_orphans, keep
from cli.up_left import close_sessions, crash_flow_runs
from cli.up_notice import RunningUp
from cli.up_plan import Plan, plan
from cli.up_signals import Signals
from deployments.names import WORK_POOL
from tasks.python_process import command
from whitney.settings import resolve_settings

MODELS = ("tiny", "smollm2-135m-instruct")
PORTS = 65536


def up(
    *,
    models: Annotated[tuple[str, ...], Parameter(name="--model", negative="", consume_multiple=True)] = MODELS,
    port: int | None = None,
    gateway_port: int | None = None,
    limit: Annotated[int | None, Parameter(name=("--limit", "-l"))] = None,
    deploy: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Start what deployments need on this machine, until Ctrl-C: a Prefect server, a gateway and a worker.

    Prefect is what PREFECT_API_URL names, else a server whose database stays in .whitney/ of this folder. Whitney is
    what WHITNEY_BASE_URL names, else a gateway that runs on this machine, else one that is started. Commands in this
    folder find both by themselves. A part that dies is started again.

    The first Ctrl-C has runs that are at work close their sessions, and stops everything; Retry goes on with them
    later. The second ends it at once.

    Parameters
    ----------
    models
        A model that the gateway serves; may be repeated.
    port
        Port of the Prefect server that is started, 0 for any; default: 4200, or another where that is taken.
    gateway_port
        Port of the gateway that is started, 0 for any; default: 8471, or another where that is taken.
    limit
        How many runs at once; default: as many as are due.
    deploy
        Register the deployments, too: `whitney deploy`.
    """
    from rich.console import Console

    _require_numbers(port, gateway_port, limit)
    say = sayer(Console())
    signals = Signals()
    was_up = False
    with _sole_up(), signals.heard():
        try:
            planned = plan(models, port, gateway_port, limit, say)
            with _all_running(planned, say, signals) as kept, _announced(planned.prefect):
                _say_what_is_up(planned, say, deployed=deploy)
                was_up = True
                if deploy:
                    _deploy()
                keep(kept)
        except KeyboardInterrupt:
            if not was_up:
                raise
            say("Stopped.")
    return 0


def _require_numbers(port: int | None, gateway_port: int | None, limit: int | None) -> None:
    """Raises UsageError for a number that cannot be."""
    if limit is not None and limit < 1:
        raise UsageError(f"--limit {limit}: must be at least 1, the runs at once")
    for flag, number in (("--port", port), ("--gateway-port", gateway_port)):
        if number is not None and not 0 <= number < PORTS:
            raise UsageError(f"{flag} {number}: a port is a number from 0 to {PORTS - 1}")


@contextmanager
def _sole_up() -> Iterator[None]:
    """Only one at a time in a folder.

    Raises:
        UsageError: another runs.
    """
    PROJECT_DATA.mkdir(parents=True, exist_ok=True)
    lock = FileLock(PROJECT_DATA / "up.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        there = RunningUp.read()
        which = f" (process {there.pid}, Prefect at {there.prefect.shown})" if there else ", and is just starting"
        stop = f": stop it with Ctrl-C in its terminal, or `kill {there.pid}`" if there else ""
        raise UsageError(f"`whitney up` runs already in this folder{which}{stop}") from None
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _all_running(planned: Plan, say: Say, signals: Signals) -> Iterator[list[Kept]]:
    """Everything is up while the block runs; then the worker is stopped first, and the Prefect server last."""
    adopt_orphans()
    services = [Kept(part, say) for part in planned.services]
    worker = Kept(planned.worker, say)
    kept = [*services, worker]
    with ExitStack() as stack:
        try:
            for service in services:
                stack.callback(service.close)
                service.spawn()  # they start side by side
            for service in services:
                service.wait()
            _clear_up(planned, say)
            stack.callback(end_orphans, kept)
            stack.callback(worker.close)
            worker.spawn()
            worker.wait()
            yield kept
        finally:
            signals.stopping()
            say("Stopping: runs that are at work close their sessions; Ctrl-C once more ends everything at once")


def _clear_up(planned: Plan, say: Say) -> None:
    """End what an earlier `whitney up` was killed in the midst of."""
    if planned.gateway is not None:
        close_sessions(resolve_settings(), planned.prefect.prefect, say)
    if planned.server is not None:
        crash_flow_runs(planned.prefect.prefect, say)


@contextmanager
def _announced(prefect: RunningUp) -> Iterator[None]:
    prefect.write()
    try:
        yield
    finally:
        prefect.take_down()


def _say_what_is_up(planned: Plan, say: Say, *, deployed: bool) -> None:
    say(f"Prefect   {planned.prefect.prefect.shown.removesuffix('/api')} (open it in a browser)")
    say(f"Whitney   {resolve_settings().base_url}")
    say(f"Worker    of work pool {WORK_POOL}")
    say(f"Logs      {', '.join(str(part.log) for part in (*planned.services, planned.worker))}")
    if not deployed:  # else `whitney deploy` says how
        say(
            "Next, in another terminal, in this folder: `whitney run CONFIG`, or `whitney deploy` and then a run of it:"
        )
        say(f"  export PREFECT_API_URL={planned.prefect.prefect.shown}")
        say("  prefect deployment run 'grpo/nightly'")
    say("Ctrl-C stops everything.")


def _deploy() -> None:
    """Register the deployments.

    Raises:
        CommandFailedError: that did not work; it has said why.
    """
    if subprocess.run(command("cli", "deploy"), check=False, stdin=subprocess.DEVNULL).returncode:
        raise CommandFailedError("`whitney deploy` did not work: everything is stopped")
