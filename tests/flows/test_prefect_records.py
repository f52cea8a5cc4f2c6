"""What Prefect keeps of a run: never the key, never the numbers."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId
from prefect.settings import PREFECT_API_DATABASE_CONNECTION_URL, PREFECT_LOCAL_STORAGE_PATH
from tiny_configs import grpo_config

import flows

pytestmark = pytest.mark.usefixtures("prefect_server")

MOST_NUMBERS = 1000


def count_numbers(value: Any) -> int:
    """Numbers anywhere inside a JSON value."""
    if isinstance(value, dict):
        return sum(count_numbers(item) for item in value.values())
    if isinstance(value, list):
        return sum(count_numbers(item) for item in value)
    return isinstance(value, int | float) and not isinstance(value, bool)


async def test_no_record_holds_the_key_or_a_thousand_numbers(endpoint: Any, tmp_path: Path) -> None:
    # Enough completions that any batch that slipped through would be seen: 1,536 sampled tokens a cycle.
    config = grpo_config(
        tmp_path,
        group_size=32,
        groups_per_cycle=8,
        cycles=2,
        rewards=[{"function": "length", "arguments": {"target": 3}}],
    )
    summary = await flows.grpo(config)
    async with get_client() as client:
        parent = await client.read_flow_run(summary["flow_run_id"])
        flow_runs = await client.read_flow_runs(limit=200)
        task_runs = await client.read_task_runs(limit=200)
        artifacts = await client.read_artifacts(
            artifact_filter=ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[parent.id]))
        )
    records = [*flow_runs, *task_runs]
    assert len(task_runs) > 20
    for record in records:
        assert count_numbers(record.model_dump(mode="json")) < MOST_NUMBERS, record.name
    assert sorted(str(artifact.type) for artifact in artifacts if artifact.key) == ["markdown", "progress"]
    report = next(artifact for artifact in artifacts if artifact.type == "markdown")
    assert "image/svg+xml" in str(report.data)
    assert endpoint.api_key not in "".join(record.model_dump_json() for record in [*records, *artifacts])


def test_neither_the_database_nor_the_result_files_nor_the_run_folder_hold_the_key(
    endpoint: Any, tmp_path: Path
) -> None:
    database = Path(str(PREFECT_API_DATABASE_CONNECTION_URL.value()).split("///", 1)[1])
    with sqlite3.connect(database) as connection:
        connection.execute("PRAGMA wal_checkpoint(FULL)")
    connection.close()
    kept = [database, *PREFECT_LOCAL_STORAGE_PATH.value().rglob("*"), *tmp_path.rglob("*")]
    needle = endpoint.api_key.encode()
    assert [path for path in kept if path.is_file() and needle in path.read_bytes()] == []
