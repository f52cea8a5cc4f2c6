"""The folder of results that all workers share, on a real Prefect server; afterwards it has none again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.results import get_default_result_storage

from cli.app import run_command
from deployments.results import make_result_storage


@pytest.fixture
def api(prefect_server: str) -> Iterator[SyncPrefectClient]:
    with get_client(sync_client=True) as client:
        yield client
        client.clear_server_default_result_storage()


def basepath() -> str:
    """Where a run of this server would keep its results."""
    return str(get_default_result_storage(_sync=True).basepath)  # type: ignore[call-arg, union-attr]


def test_a_shared_folder_becomes_the_servers_default_and_each_folder_keeps_a_block_of_its_own(
    api: SyncPrefectClient, tmp_path: Path
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    assert make_result_storage(api, here, dry_run=True).verb == "created"
    assert api.read_server_default_result_storage().default_result_storage_block_id is None
    assert make_result_storage(api, here).verb == "created"
    former = api.read_server_default_result_storage().default_result_storage_block_id
    assert basepath() == str(here)
    assert make_result_storage(api, here).verb == "unchanged"
    changed = make_result_storage(api, there)
    assert (changed.verb, changed.details) == ("changed", (f"{here} → {there}",))
    assert basepath() == str(there)
    assert former is not None
    assert api.read_block_document(former).data["basepath"] == str(here)


@pytest.mark.usefixtures("api")
def test_a_folder_that_is_not_there_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command(["deploy", "--results", "nowhere"]) == 2
    assert "--results nowhere: no such folder; make it, or mount the one" in capsys.readouterr().err
