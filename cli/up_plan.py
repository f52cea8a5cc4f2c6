"""What `whitney up` has to start, and what is there already. All that can be wrong beforehand is found here."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass

from cli.failures import UsageError
from cli.local_extra import require_local_extra
from cli.prefect_answers import is_up
from cli.prefect_server import STANDARD_PORT, free_port, project_server_environment
from cli.run_data import PROJECT_DATA
from cli.terminal import Say
from cli.up_notice import RunningUp
from cli.up_parts import Part, gateway_part, server_part, worker_part
from tasks.userinfo import without_userinfo

GATEWAY_PORT = 8471


@dataclass(frozen=True, slots=True)
class Plan:
    """Where Prefect will be, and the parts to start: `server` and `gateway` are None where others run."""

    prefect: RunningUp
    server: Part | None
    gateway: Part | None
    worker: Part

    @property
    def services(self) -> list[Part]:
        """What the worker needs."""
        return [part for part in (self.server, self.gateway) if part is not None]


def plan(models: Sequence[str], port: int | None, gateway_port: int | None, limit: int | None, say: Say) -> Plan:
    """Look at what is named and what runs.

    Raises:
        UsageError: Prefect or a port cannot be had; the gateway's dependencies are not installed.
        ConfigurationError, WhitneyError: the endpoint that is named cannot be used, or does not answer.
        ModelError: a model is unknown, or cannot be fetched.
    """
    configured = _configured_prefect(port)
    environment: dict[str, str] = {}
    server = None
    prefect = RunningUp(os.getpid(), configured or "", None)
    if configured is None:
        home = (PROJECT_DATA / "prefect").resolve()
        environment = project_server_environment(home, _port(port, "--port", STANDARD_PORT))
        prefect = RunningUp(os.getpid(), environment["PREFECT_API_URL"], str(home))
        server = server_part(environment, PROJECT_DATA / "prefect-server.log")
    gateway = _gateway(models, gateway_port, say)
    return Plan(prefect, server, gateway, worker_part(environment, limit, PROJECT_DATA / "worker.log"))


def _configured_prefect(port: int | None) -> str | None:
    """The Prefect API that is named already; None where none is."""
    from prefect.settings import PREFECT_API_URL

    url: str | None = PREFECT_API_URL.value()
    if url is None:
        return None
    if port is not None:
        raise UsageError(
            f"--port {port}: PREFECT_API_URL names a server, {without_userinfo(url)}, so none is started; leave one out"
        )
    if not is_up(url):
        shown = without_userinfo(url)
        raise UsageError(f"Prefect at {shown} does not answer: start it, or unset PREFECT_API_URL to have one started")
    return url


def _port(wanted: int | None, flag: str, standard: int) -> int:
    """The port that was asked for, else the standard one or, where that is taken, any other."""
    found = free_port(standard if wanted is None else wanted)
    if wanted and found != wanted:
        raise UsageError(
            f"{flag} {wanted}: another program listens there; stop it, choose another port, or leave the option out "
            "for one that is free"
        )
    return found


def _gateway(models: Sequence[str], port: int | None, say: Say) -> Part | None:
    """The gateway that is to be started; None where Whitney answers already."""
    from cli.endpoint import greet
    from whitney.errors import NoEndpointError
    from whitney.settings import default_data_dir, resolve_settings

    try:
        settings = resolve_settings()
    except NoEndpointError:
        require_local_extra()
    else:
        if port is not None:
            raise UsageError(
                f"--gateway-port {port}: Whitney is at {settings.base_url} already, so none is started; leave it out"
            )
        asyncio.run(greet(settings, say))
        return None
    port = _port(port, "--gateway-port", GATEWAY_PORT)
    import models as model_folders
    from gateway.launch import made

    for model in models:
        model_folders.resolve(model, progress=say)  # here, where the download's progress can be seen
    return gateway_part(made(default_data_dir()), models, port)
