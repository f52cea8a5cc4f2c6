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

TESTS = Path(__file__).parent
# The files that take longest, the longest first: begun last, one of them would keep everybody waiting for its end.
LONGEST = (
    "flows/test_retry_from_ui.py",
    "benchmarks/test_chaos.py",
    "flows/test_pipeline_retry.py",
    "test_readme.py",
    "cli/test_up.py",
    "cli/test_operations_doc.py",
    "flows/test_retry_finds_its_way.py",
    "flows/test_every_flow.py",
    "flows/test_slots.py",
    "flows/test_approval_and_skipping.py",
    "flows/test_retry_overlaps.py",
    "cli/test_interrupts.py",
    "cli/test_temporary_prefect.py",
    "cli/test_resume.py",
    "cli/test_gateway_of_the_run_dies.py",
    "flows/test_retry_in_the_browser.py",
    "benchmarks/test_learn.py",
    "cli/test_doctor_and_smoke.py",
)


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
    """The longest files first. `slow` tests take minutes: they run only where a mark expression says so, `-m slow`."""
    places = {TESTS / name: place for place, name in enumerate(LONGEST)}
    if gone := [str(path) for path in places if not path.is_file()]:
        raise pytest.UsageError(f"tests/conftest.py, LONGEST: there is no {', '.join(gone)}")
    items.sort(key=lambda item: places.get(item.path, len(places)))
    if "slow" in config.option.markexpr:
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]
