"""What many tests share: one real Prefect server, one real gateway with the tiny model, both for the whole session."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
from prefect_tables import with_tables

from tasks.prefect_server import SERVER_SETTINGS

os.environ.update(SERVER_SETTINGS)  # before Prefect is imported anywhere


@pytest.fixture(scope="session")
def prefect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Prefect server in a process of its own, with empty tables; the URL of its API."""
    from prefect.settings import PREFECT_API_URL, PREFECT_FLOWS_HEARTBEAT_FREQUENCY, PREFECT_HOME, temporary_settings
    from prefect.testing.utilities import prefect_test_harness

    home = tmp_path_factory.mktemp("prefect")
    tables = with_tables(tmp_path_factory.mktemp("tables"), database="prefect-test.db")
    with (
        patch("prefect.testing.utilities.mkdtemp", return_value=str(tables)),
        temporary_settings({PREFECT_HOME: home, PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}),
        prefect_test_harness(server_startup_timeout=120),
    ):
        yield PREFECT_API_URL.value()


@pytest.fixture(scope="session")
def tiny_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """The embedded gateway with the tiny model, deterministic, in a process of its own."""
    from gateway.launch import start_gateway

    folder = tmp_path_factory.mktemp("gateway")
    with start_gateway(folder, provider="local", models=("tiny",), extra_args=["--deterministic"]) as gateway:
        yield gateway


@pytest.fixture
def endpoint(tiny_gateway: object, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> object:
    """The tiny gateway as the environment names it, in an empty working directory (no `.env` of the developer's)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WHITNEY_BASE_URL", tiny_gateway.base_url)  # type: ignore[attr-defined]
    monkeypatch.setenv("WHITNEY_API_KEY", tiny_gateway.api_key)  # type: ignore[attr-defined]
    return tiny_gateway


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`slow` tests take minutes each: they run only where a mark expression names them, `-m slow`."""
    if "slow" in config.option.markexpr:
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]
