"""A whole scenario with a planted key, and everything it leaves behind searched for it: nothing has it.

A run fails in the user's own function, which quotes the environment; the hook closes its session; Retry; reports; the
reaper. Searched are Prefect's database, its API and its result files, the run folder, all that the gateway keeps and
logs, and all that was logged.
"""

from __future__ import annotations

import base64
import gzip
import logging
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import UUID

import pytest
from flow_probes import first_attempt, retry, sessions_of
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State, StateType
from prefect.events.filters import EventFilter
from prefect.settings import PREFECT_API_DATABASE_CONNECTION_URL, PREFECT_HOME, PREFECT_LOCAL_STORAGE_PATH
from tiny_configs import tiny_config

import flows
from flows.reap import reap
from gateway.launch import GatewayProcess, start_gateway
from gateway.ledger.database import unpack
from tasks.credentials import WhitneyCredentials
from whitney.client import WhitneyClient
from whitney.labels import ATTEMPT, CREATE_KEY, FLOW_RUN
from whitney.settings import WhitneySettings

KEY = "planted-7f3a/KEY+that-must-not-travel"
# In base64 a text looks different at each of three places; what its neighbours have a part in is cut off.
IN_BASE64 = {base64.b64encode(b"." * before + KEY.encode())[4:-4] for before in range(3)}
FORMS = {KEY.encode(), quote(KEY, safe="").encode(), KEY.encode("utf-16-le"), *IN_BASE64}

# Token ids, log-probs, advantages: a batch that slipped through would be hundreds of numbers in a row.
NUMBERS_IN_A_ROW = re.compile(rb"(?:-?\d+(?:\.\d+)?(?:e[-+]?\d+)?\s*,\s*){100}")

BUILD_LOSS = """
import os
from pathlib import Path
from algorithms import build_loss as shipped

def build_loss(sample, cycle, request, ctx):
    once = Path(__file__).with_suffix(".failed")
    if cycle == 1 and not once.exists():
        once.touch()
        raise LookupError(f"no such thing in {dict(os.environ)}") from KeyError(os.environ["WHITNEY_API_KEY"])
    return shipped(sample, cycle, request, ctx)
"""


@pytest.fixture
def planted(prefect_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GatewayProcess]:
    """A gateway whose key is in its environment, and so in no file of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WHITNEY_API_KEY", KEY)
    with start_gateway(tmp_path / "gateway", extra_args=["--deterministic"]) as gateway:
        assert gateway.api_key == KEY
        monkeypatch.setenv("WHITNEY_BASE_URL", gateway.base_url)
        yield gateway


def config(folder: Path, **fields: Any) -> Any:
    shape = {"cycles": 2, "save_every": 1, "groups_per_cycle": 4, "group_size": 16}
    return tiny_config("custom", folder / "runs", **{**shape, **fields})


async def closed_by_the_reaper(flow_run_id: UUID) -> None:
    """As after the death of a process and its runner: a session of the flow run is open, and the reaper closes it."""
    labels = {FLOW_RUN: str(flow_run_id), ATTEMPT: "1", CREATE_KEY: "left open"}
    async with WhitneyClient(WhitneySettings()) as client:
        left = await client.create_session(create_key="left open", labels=labels)
    outcome = await reap()
    assert left.session_id in outcome["closed"]


def everything_kept(folder: Path) -> dict[str, bytes]:
    """Every file that Prefect, the flows and the gateway have left, by its path.

    Prefect's: the database with what has not been merged into it yet, results, and what else is in its home.
    """
    database = Path(str(PREFECT_API_DATABASE_CONNECTION_URL.value()).split("///", 1)[1])
    places = (PREFECT_HOME.value(), PREFECT_LOCAL_STORAGE_PATH.value(), database.parent, folder)
    files = {path for place in places for path in place.rglob("*") if path.is_file()}
    return {str(path): path.read_bytes() for path in files}


def everything_packed(folder: Path) -> dict[str, bytes]:
    """What lies compressed in the gateway's ledger, and in exported adapters."""
    (ledger,) = folder.rglob("ledger.sqlite")
    with closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)) as connection:
        blobs = connection.execute("SELECT payload, result FROM operations").fetchall()
    rows = {f"operation {place}": b"".join(map(unpack, filter(None, row))) for place, row in enumerate(blobs)}
    archives = {str(path): gzip.decompress(path.read_bytes()) for path in folder.rglob("*.tar.gz")}
    assert any(rows.values())
    assert archives
    return rows | archives


async def everything_answered(flow_run_id: UUID) -> bytes:
    """What the API says of the scenario: flow runs with parameters and labels, task runs, logs, artifacts, events."""
    async with get_client() as api:
        answers = [
            await api.read_flow_run(flow_run_id),  # the session may have left more than one page of others
            *await api.read_flow_runs(limit=200),
            *await api.read_task_runs(limit=200),
            *await api.read_logs(),
            *await api.read_artifacts(limit=200),
        ]
        events = await api.request("POST", "/events/filter", json={"filter": EventFilter().model_dump(mode="json")})
    assert any(getattr(answer, "id", None) == flow_run_id for answer in answers)
    return "\n".join(answer.model_dump_json() for answer in answers).encode() + events.content


def require_no_key(name: str, content: bytes) -> None:
    assert not [form for form in FORMS if form in content], f"the key is in {name}"


def require_clean(name: str, content: bytes) -> None:
    require_no_key(name, content)
    assert not NUMBERS_IN_A_ROW.search(content), f"a hundred numbers in a row are in {name}"


async def require_nothing_tells(folder: Path, flow_run_id: UUID, logged: str, *states: State[Any]) -> None:
    kept = everything_kept(folder)
    for expected in (".db", "gateway.log", "ledger.sqlite", "summary.json"):
        assert any(name.endswith(expected) for name in kept), expected
    for name, content in kept.items():
        require_clean(name, content)
    for name, content in everything_packed(folder).items():  # where numbers in a row belong: the gateway's own
        require_no_key(name, content)
    require_clean("what the API answers", await everything_answered(flow_run_id))
    require_clean("what was logged", logged.encode())
    for state in states:
        require_clean("a state", repr(state).encode() + repr(state.data).encode())


async def test_the_key_is_nowhere_after_a_failure_that_quoted_it_a_hook_a_retry_a_report_and_the_reaper(
    planted: GatewayProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="prefect.flow_runs")
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "my_own_loss.py").write_text(BUILD_LOSS)
    chosen = config(tmp_path, build_loss="my_own_loss:build_loss")
    flow_run_id, failed = await first_attempt(flows.custom, chosen)
    assert failed.type == StateType.FAILED
    assert "LookupError: no such thing in" in str(failed.message)
    assert "[key]" in str(failed.message)
    completed = await retry(flows.custom, flow_run_id)
    assert completed.type == StateType.COMPLETED
    await closed_by_the_reaper(flow_run_id)
    assert [session.status for session in await sessions_of(flow_run_id)] == ["closed"] * 3
    assert "cycle 2 of 2" in caplog.text
    await require_nothing_tells(tmp_path, flow_run_id, caplog.text, failed, completed)


async def test_the_key_of_a_credentials_block_is_encrypted_at_rest_and_nowhere_else(
    planted: GatewayProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="prefect.flow_runs")
    block = WhitneyCredentials(base_url=planted.base_url, api_key=KEY)
    await block.save("planted", overwrite=True)
    monkeypatch.delenv("WHITNEY_API_KEY")
    monkeypatch.delenv("WHITNEY_BASE_URL")
    flow_run_id, completed = await first_attempt(flows.custom, config(tmp_path, credentials_block="planted"))
    assert completed.type == StateType.COMPLETED
    assert (await reap(credentials_block="planted")) is not None
    await require_nothing_tells(tmp_path, flow_run_id, caplog.text, completed)
