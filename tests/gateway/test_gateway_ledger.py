"""The ledger's file: what an older gateway wrote is kept, and every execution is counted before it happens."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gateway.ledger import Ledger, LedgerError
from gateway.ledger.database import SCHEMA_VERSION, pack

if TYPE_CHECKING:
    from conftest import Caller, Payloads

SPEC = '{"create_key": "r", "provider": "local", "model": "tiny"}'


@pytest.fixture
def ledger_of_version_1(tmp_path: Path) -> Path:
    """A file as version 1 left it: a session with a run that saved a state, failed, and left one operation queued."""
    path = tmp_path / "ledger.sqlite"
    with closing(sqlite3.connect(path, isolation_level=None)) as old:
        old.executescript(Path(__file__).with_name("ledger_v1.sql").read_text())
        old.execute("PRAGMA user_version = 1")
        old.execute(
            "INSERT INTO sessions VALUES ('ses_1', 'key', 'digest', '{\"a\": \"b\"}', 'closed', 'why', 1.0, 2.0)"
        )
        old.execute("INSERT INTO runs VALUES ('run_1', 'ses_1', 'r', 'digest', ?, 'failed', 'why', 4, 1.5)", [SPEC])
        operations = [
            (0, "forward_backward", "succeeded", {"metrics": {"loss": 1.0}}),
            (1, "save_state", "succeeded", {"state_id": "st_1"}),
            (2, "export_lora", "failed", None),
            (3, "optim_step", "cancelled", None),
        ]
        for seq_id, kind, status, result in operations:
            old.execute(
                "INSERT INTO operations (run_id, seq_id, kind, digest, status, result, trained_tokens)"
                " VALUES ('run_1', ?, ?, 'digest', ?, ?, 7)",
                (seq_id, kind, status, None if result is None else pack(result)),
            )
        old.execute("INSERT INTO billing VALUES ('run_1', 'forward_backward', 1, 0, 0, 7)")
        old.execute("INSERT INTO files VALUES ('st_1', 'state', 'run_1', 'tiny', 16, 32.0, 10, 'sha', 3.0)")
    return path


@pytest.fixture
def migrated(ledger_of_version_1: Path) -> Iterator[Ledger]:
    ledger = Ledger(ledger_of_version_1)
    yield ledger
    ledger.close()


def test_a_ledger_of_version_1_is_opened_with_everything_that_it_holds(migrated: Ledger) -> None:
    session, run = migrated.sessions.get("ses_1"), migrated.runs.get("run_1")
    assert session is not None
    assert run is not None
    assert (session.labels, session.status, session.reason, session.heartbeat_at) == ({"a": "b"}, "closed", "why", 2.0)
    assert (run.spec.model, run.status, run.next_seq_id) == ("tiny", "failed", 4)
    assert migrated.runs.usage("run_1").trained_tokens == 7
    kept = [migrated.operations.get("run_1", seq_id) for seq_id in range(4)]
    assert [operation and operation.status for operation in kept] == ["succeeded", "succeeded", "failed", "cancelled"]
    assert kept[0] is not None
    assert kept[0].result == b'{"metrics":{"loss":1.0}}'


def test_files_of_version_1_know_which_operation_saved_them(migrated: Ledger) -> None:
    state = migrated.files.get("state", "st_1")
    assert state is not None
    assert (state.size_bytes, state.created_at, state.seq_id, state.gone_at) == (10, 3.0, 1, None)
    assert migrated.files.state_before("run_1", 2) == "st_1"


def test_what_version_1_executed_counts_as_executed_once(migrated: Ledger) -> None:
    rows = migrated._database.all("SELECT executions FROM operations ORDER BY seq_id")
    assert [row["executions"] for row in rows] == [1, 1, 1, 0]


def test_a_migrated_ledger_has_the_columns_of_a_new_one(migrated: Ledger, tmp_path: Path) -> None:
    def columns(ledger: Ledger) -> dict[str, set[tuple[str, str, int]]]:
        tables = ledger._database.all("SELECT name FROM sqlite_schema WHERE type = 'table'")
        return {
            table["name"]: {
                (row["name"], row["type"], row["notnull"])
                for row in ledger._database.all(f"PRAGMA table_info({table['name']})")
            }
            for table in tables
        }

    with closing(Ledger(tmp_path / "new.sqlite")) as new:
        assert columns(migrated) == columns(new)


def test_a_migration_that_breaks_off_leaves_version_1_as_it_was(
    ledger_of_version_1: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> bytes:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as broken:
        broken.setattr("gateway.ledger.database.unpack", full)
        with pytest.raises(sqlite3.OperationalError, match="full"):
            Ledger(ledger_of_version_1)
    with closing(sqlite3.connect(ledger_of_version_1)) as found:
        assert found.execute("PRAGMA user_version").fetchone() == (1,)
        assert "executions" not in {row[1] for row in found.execute("PRAGMA table_info(operations)")}
    with closing(Ledger(ledger_of_version_1)) as ledger:
        assert ledger._database.all("PRAGMA user_version")[0][0] == SCHEMA_VERSION


DAMAGES = {
    r"is damaged \(Page 2: ": lambda good: good[:4096] + b"\xff" * 100 + good[4196:],
    r"is damaged \(its schema is not text\)": lambda good: good.replace(b"tablesessions", b"table" + b"\xdf" * 8),
}


@pytest.mark.parametrize("told", DAMAGES)
def test_a_damaged_ledger_is_told_at_the_start_by_its_files_name(told: str, tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    Ledger(path).close()
    path.write_bytes(DAMAGES[told](path.read_bytes()))
    with pytest.raises(LedgerError, match=f"the ledger {path} {told}.*restore it from a copy"):
        Ledger(path)


def test_a_row_that_is_no_text_any_more_is_damage(ledger_of_version_1: Path) -> None:
    Ledger(ledger_of_version_1).close()
    ledger_of_version_1.write_bytes(ledger_of_version_1.read_bytes().replace(b'{"a": "b"}', b'{"a": "\xff"}'))
    with pytest.raises(LedgerError, match=r"is damaged \(a row of sessions is not text\)"):
        Ledger(ledger_of_version_1)


def test_a_ledger_that_lacks_a_table_is_refused_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    Ledger(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TABLE billing")
    with pytest.raises(sqlite3.DatabaseError, match="no such table: billing"):
        Ledger(path)


async def test_every_execution_is_counted_before_it_happens(caller: Caller, payloads: Payloads) -> None:
    def executions() -> list[int]:
        rows = caller.gateway._parts.ledger._database.all("SELECT executions FROM operations ORDER BY seq_id")
        return [row["executions"] for row in rows]

    run_id = await caller.open_run()
    await caller.do(run_id, 0, "optim_step", payloads.optim_step)
    await caller.post(run_id, 0, "optim_step", payloads.optim_step)
    caller.provider.gate.clear()
    await caller.post(run_id, 1, "optim_step", payloads.optim_step)
    await caller.post(run_id, 2, "optim_step", payloads.optim_step)
    await caller.until_executing()
    assert executions() == [1, 1, 0]
    await caller.send("POST", f"/runs/{run_id}/cancel")
    caller.provider.gate.set()
    await caller.wait(run_id, 1)
    assert executions() == [1, 1, 0]
