"""A ledger that cannot be written, as on a full disk: runs end, nobody waits for ever, the gateway goes on."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gateway.ledger import Ledger
from whitney.types import CreateRun

if TYPE_CHECKING:
    from conftest import Caller, Payloads


def _connection(ledger: Ledger) -> sqlite3.Connection:
    return ledger._database._connection  # the one place a failing disk can be had from


@contextmanager
def nothing_can_be_written(caller: Caller) -> Iterator[None]:
    connection = _connection(caller.gateway._parts.ledger)
    connection.execute("PRAGMA query_only = ON")
    try:
        yield
    finally:
        connection.execute("PRAGMA query_only = OFF")


async def _stuck(caller: Caller, payloads: Payloads) -> tuple[str, str]:
    """A run whose first operation executes while a second waits."""
    session_id = await caller.open_session()
    run_id = await caller.open_run(session_id)
    caller.provider.gate.clear()
    for seq_id in (0, 1):
        await caller.post(run_id, seq_id, "optim_step", payloads.optim_step)
    await caller.until_executing()
    return session_id, run_id


async def _until_unserved(caller: Caller, run_id: str) -> None:
    caller.provider.gate.set()
    async with asyncio.timeout(10):
        while run_id not in caller.provider.released:
            await asyncio.sleep(0.01)


async def test_every_operation_of_a_run_whose_results_could_not_be_recorded_ends(
    caller: Caller, payloads: Payloads
) -> None:
    _, run_id = await _stuck(caller, payloads)
    with nothing_can_be_written(caller):
        polls = [asyncio.create_task(caller.wait(run_id, seq_id)) for seq_id in (0, 1)]
        await _until_unserved(caller, run_id)
        refused = await caller.post(run_id, 2, "optim_step", payloads.optim_step)
    running, queued = await asyncio.gather(*polls)
    assert (running["status"], running["error"]["code"], queued["status"]) == ("failed", "ledger_failed", "cancelled")
    run = await caller.get(f"/runs/{run_id}")
    assert (run["status"], run["reason"], run["usage"]["operations"]) == ("failed", "ledger_failed", {})
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "run_not_active")


async def test_the_end_of_a_run_that_could_not_be_recorded_is_on_record_after_a_cancel(
    caller: Caller, payloads: Payloads
) -> None:
    session_id, run_id = await _stuck(caller, payloads)
    with nothing_can_be_written(caller):
        await _until_unserved(caller, run_id)
        cancelled = await caller.send("POST", f"/runs/{run_id}/cancel")
        assert (cancelled.status_code, cancelled.json()["status"]) == (202, "active")
    assert (await caller.send("POST", f"/runs/{run_id}/cancel")).json()["status"] == "failed"
    assert (await caller.send("POST", f"/sessions/{session_id}/close")).json()["status"] == "closed"


async def test_a_run_that_the_ledger_holds_for_alive_and_nobody_serves_can_be_cancelled(caller: Caller) -> None:
    run_id = await caller.open_run()
    queue = caller.gateway._executor.live.pop(run_id)  # no request leads here; a bug might
    caller.gateway._parts.scheduler.remove(queue)
    assert (await caller.send("POST", f"/runs/{run_id}/cancel")).json()["status"] == "cancelled"


async def test_other_runs_are_served_after_a_run_that_could_not_be_recorded(caller: Caller, payloads: Payloads) -> None:
    _, run_id = await _stuck(caller, payloads)
    with nothing_can_be_written(caller):
        await _until_unserved(caller, run_id)
    await caller.do(await caller.open_run(), 0, "optim_step", payloads.optim_step)


async def test_a_cancel_that_cannot_be_recorded_leaves_the_queue_as_it_was(caller: Caller, payloads: Payloads) -> None:
    _, run_id = await _stuck(caller, payloads)
    with nothing_can_be_written(caller):
        refused = await caller.send("POST", f"/runs/{run_id}/cancel")
    assert (refused.status_code, refused.json()["error"]["code"]) == (507, "ledger_not_written")
    caller.provider.gate.set()
    assert [(await caller.wait(run_id, seq_id))["status"] for seq_id in (0, 1)] == ["succeeded", "succeeded"]


def test_a_commit_that_fails_leaves_no_transaction_open_for_later_writes_to_be_lost_in(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite")
    run = CreateRun(create_key="k", provider="local", model="tiny")

    def add_run_of_no_session() -> None:
        with ledger.transaction():
            _connection(ledger).execute("PRAGMA defer_foreign_keys = ON")  # so that COMMIT itself finds the mistake
            ledger.runs.add("run_1", "ses_none", "digest", run, 0.0)

    with pytest.raises(sqlite3.IntegrityError):
        add_run_of_no_session()
    ledger.sessions.add("ses_1", "key", "digest", {}, 0.0)
    ledger.close()
    reopened = Ledger(tmp_path / "ledger.sqlite")
    assert reopened.sessions.get("ses_1") is not None
    assert reopened.runs.get("run_1") is None
    reopened.close()
