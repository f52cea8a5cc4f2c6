"""`whitney up`: Prefect server, gateway and worker for one machine, and nothing of them left running at the end."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Annotated

from cyclopts import Parameter
from filelock import FileLock, Timeout

from cli.failures import CommandFailedError, UsageError
from cli.local_extra import require_local_extra
from cli.run_data import PROJECT_DATA
from cli.terminal import Say, sayer
from cli.up_keeper import Kept, adopt_orphans, end_orphans, keep
from cli.up_notice import RunningUp
from cli.up_parts import Part, gateway_part, server_part, usable_port, worker_part
from cli.up_signals import Signals

MODELS = ("tiny", "smollm2-135m-instruct")
GATEWAY_PORT = 8471


def up(
    *,
    models: Annotated[tuple[str, ...], Parameter(name="--model", negative="", consume_multiple=True)] = MODELS,
    port: int | None = None,
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
        A model that the gateway serves; may be repeated. Each adapter costs memory, a model 0.5 GB for both together.
    port
        Port of the Prefect server that is started; default: 4200, or another where that is taken.
    limit
        How many runs at once; default: as many as are due.
    deploy
        Register the deployments, too: `whitney deploy`.
    """
    from rich.console import Console

    if limit is not None and limit < 1:
        raise UsageError(f"--limit {limit}: must be at least 1, the runs at once")
    if port is not None and not 0 < port < 65536:
        raise UsageError(f"--port {port}: a port is a number from 1 to 65535")
    say = sayer(Console())
    was_up = False
    signals = Signals()
    with _sole_up(), signals.heard():
        try:
            parts, prefect = _parts(models, port, limit, say)
            with _all_running(parts, say, signals) as kept, _announced(prefect, say):
                _say_what_is_up(prefect, parts, say, deployed=deploy)
                was_up = True
                if deploy:
                    _deploy()
                keep(kept)
        except KeyboardInterrupt:
            say("Stopped.")
            if not was_up:
                raise
    return 0


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
        which = f" (process {there.pid}, Prefect at {there.prefect_api_url})" if there else ", and is just starting"
        stop = f": stop it with Ctrl-C in its terminal, or `kill {there.pid}`" if there else ""
        raise UsageError(f"`whitney up` runs already in this folder{which}{stop}") from None
    try:
        yield
    finally:
        lock.release()


def _parts(models: tuple[str, ...], port: int | None, limit: int | None, say: Say) -> tuple[list[Part], RunningUp]:
    """What has to be started, in that order, and where Prefect will be. All that can be wrong is found here."""
    from cli.prefect_server import STANDARD_PORT, project_server_environment

    parts = []
    configured = _configured_prefect(port)
    if configured is None:
        home = (PROJECT_DATA / "prefect").resolve()
        environment = project_server_environment(home, usable_port(port, STANDARD_PORT, "the Prefect server"))
        prefect = RunningUp(os.getpid(), environment["PREFECT_API_URL"], str(home))
        parts.append(server_part(environment, PROJECT_DATA / "prefect-server.log"))
    else:
        environment = {}
        prefect = RunningUp(os.getpid(), configured, None)
    if (gateway := _gateway(models, say)) is not None:
        parts.append(gateway)
    parts.append(worker_part(environment, limit, PROJECT_DATA / "worker.log"))
    return parts, prefect


def _configured_prefect(port: int | None) -> str | None:
    """The Prefect API that is named already; None where none is.

    Raises:
        UsageError: it does not answer, or a port is asked for beside it.
    """
    from prefect.settings import PREFECT_API_URL

    from cli.prefect_server import is_up

    url: str | None = PREFECT_API_URL.value()
    if url is None:
        return None
    if port is not None:
        raise UsageError(
            f"--port {port}: PREFECT_API_URL names a server, {url}, so none is started; unset one of the two"
        )
    if not is_up(url):
        raise UsageError(f"Prefect at {url} does not answer: start it, or unset PREFECT_API_URL to have one started")
    return url


def _gateway(models: tuple[str, ...], say: Say) -> Part | None:
    """The gateway that is to be started; None where Whitney answers already.

    Raises:
        UsageError: the gateway's dependencies are not installed.
        ConfigurationError, WhitneyError: what is named cannot be used, or does not answer.
        ModelError: a model is unknown, or cannot be fetched.
    """
    from cli.endpoint import greet
    from whitney.errors import NoEndpointError
    from whitney.settings import default_data_dir, resolve_settings

    try:
        settings = resolve_settings()
    except NoEndpointError:
        require_local_extra()
    else:
        asyncio.run(greet(settings, say))
        return None
    import models as model_folders
    from gateway.launch import made

    for model in models:
        model_folders.resolve(model, progress=say)  # here, where the download's progress can be seen
    return gateway_part(made(default_data_dir()), models, usable_port(None, GATEWAY_PORT, "the gateway"))


@contextmanager
def _all_running(parts: list[Part], say: Say, signals: Signals) -> Iterator[list[Kept]]:
    """Everything is up while the block runs; then the worker is stopped first, and the Prefect server last."""
    adopt_orphans()
    *services, worker = kept = [Kept(part, say) for part in parts]
    with ExitStack() as stack:
        try:
            for service in services:
                stack.callback(service.close)
                service.spawn()  # they start side by side
            for service in services:
                service.wait()
            stack.callback(end_orphans, kept)
            stack.callback(worker.close)
            worker.spawn()
            worker.wait()
            yield kept
        finally:
            signals.stopping()
            say("Stopping: runs that are at work close their sessions; Ctrl-C once more ends everything at once")


@contextmanager
def _announced(prefect: RunningUp, say: Say) -> Iterator[None]:
    prefect.write()
    try:
        yield
    finally:
        prefect.take_down()


def _say_what_is_up(prefect: RunningUp, parts: list[Part], say: Say, *, deployed: bool) -> None:
    from whitney.settings import resolve_settings

    say(f"Prefect   {prefect.prefect_api_url.removesuffix('/api')}")
    say(f"Whitney   {resolve_settings().base_url}")
    say("Worker    of work pool whitney")
    say(f"Logs      {', '.join(str(part.log) for part in parts)}")
    if not deployed:
        say("Next, in another terminal, in this folder: whitney deploy")
    say("Ctrl-C stops everything.")


def _deploy() -> None:
    """Register the deployments.

    Raises:
        CommandFailedError: that did not work; it has said why.
    """
    if subprocess.run([sys.executable, "-m", "cli", "deploy"], check=False, stdin=subprocess.DEVNULL).returncode:
        raise CommandFailedError("`whitney deploy` did not work: everything is stopped")
