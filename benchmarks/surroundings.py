"""What a flow needs around it, made for one benchmark and gone with it: a gateway, and a Prefect server."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from gateway.launch import start_gateway
from tasks.prefect_server import SERVER_SETTINGS

os.environ.update(SERVER_SETTINGS)  # before Prefect is imported anywhere
os.environ.setdefault("PREFECT_LOGGING_LEVEL", "WARNING")  # the table is what a benchmark has to say


@contextmanager
def gateway_as_endpoint(
    folder: Path, *, provider: str = "local", models: Sequence[str] = ("tiny",), extra_args: Sequence[str] = ()
) -> Iterator[None]:
    """A gateway in a process of its own, named by the environment while the block runs."""
    with (
        start_gateway(folder, provider=provider, models=models, extra_args=extra_args, timeout_s=180) as gateway,
        patch.dict(os.environ, WHITNEY_BASE_URL=gateway.base_url, WHITNEY_API_KEY=gateway.api_key),
    ):
        yield


@contextmanager
def prefect_server(home: Path) -> Iterator[None]:
    """A Prefect server with an empty database, and nothing of the user's own Prefect touched."""
    from prefect.settings import PREFECT_HOME, temporary_settings
    from prefect.testing.utilities import prefect_test_harness

    with temporary_settings({PREFECT_HOME: home}), prefect_test_harness(server_startup_timeout=120):
        yield
