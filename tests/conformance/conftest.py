"""The contract, spoken in plain HTTP to any Whitney.

By default to embedded gateways (fixed delays, and the engine with its tiny model). To another one: set
WHITNEY_CONFORMANCE_URL, WHITNEY_API_KEY, where it serves several models WHITNEY_CONFORMANCE_MODEL, and where its paths
are others WHITNEY_ROUTES_FILE.
Every session opened here is closed again, whatever a test does.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from conformance_caller import Whitney

from gateway.launch import start_gateway
from whitney.routes import Route, load_routes

NO_DELAYS = ("--delays", '{"sample": 0, "default": 0}')


def served_routes() -> dict[str, Route]:
    """The route table of the Whitney under test: embedded gateways have the project's own."""
    overrides = os.environ.get("WHITNEY_ROUTES_FILE") if "WHITNEY_CONFORMANCE_URL" in os.environ else None
    return load_routes(Path(overrides) if overrides else None)


@contextmanager
def _served(provider: str, folder: Any) -> Iterator[tuple[str, str]]:
    if provider == "elsewhere":
        yield os.environ["WHITNEY_CONFORMANCE_URL"], os.environ["WHITNEY_API_KEY"]
        return
    with start_gateway(folder, provider=provider, extra_args=NO_DELAYS) as gateway:
        yield gateway.base_url, gateway.api_key


@pytest.fixture(
    scope="session", params=["elsewhere"] if "WHITNEY_CONFORMANCE_URL" in os.environ else ["delay", "local"]
)
def address(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Base URL and key."""
    with _served(request.param, tmp_path_factory.mktemp(request.param)) as served:
        yield served


@pytest.fixture(scope="session")
def routes() -> dict[str, Route]:
    return served_routes()


@pytest.fixture
def whitney(address: tuple[str, str], routes: dict[str, Route]) -> Iterator[Whitney]:
    base_url, key = address
    headers = {"authorization": f"Bearer {key}"}
    with httpx.Client(base_url=base_url, headers=headers, timeout=90, trust_env=False) as http:
        caller = Whitney(http, routes, os.environ.get("WHITNEY_CONFORMANCE_MODEL"))
        yield caller
        caller.clean_up()
