"""Sessions whose owner has gone silent, and what a restart leaves of everything."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gateway.ledger import Ledger, LedgerError

TTL = 1800.0


async def test_a_silent_session_is_cancelled_and_closed_as_expired(caller: Any) -> None:
    session_id = await caller.open_session()
    run_id = await caller.open_run(session_id)
    await caller.post(run_id, 1, "save_state", {})
    caller.clock.now += TTL
    caller.gateway.sessions.expire()
    assert (await caller.get(f"/sessions/{session_id}"))["status"] == "open"
    caller.clock.now += 1
    caller.gateway.sessions.expire()
    session = await caller.get(f"/sessions/{session_id}")
    assert (session["status"], session["reason"]) == ("closed", "expired")
    assert [(run["status"], run["reason"]) for run in session["runs"]] == [("cancelled", "expired")]
    assert (await caller.wait(run_id, 1))["status"] == "cancelled"
    refused = await caller.send("POST", f"/sessions/{session_id}/heartbeat")
    assert "expired" in refused.json()["error"]["message"]


async def test_a_heartbeat_keeps_a_session_open(caller: Any) -> None:
    session_id = await caller.open_session()
    for _ in range(3):
        caller.clock.now += TTL - 1
        assert (await caller.get(f"/sessions/{session_id}"))["heartbeat_age_s"] == TTL - 1
        await caller.send("POST", f"/sessions/{session_id}/heartbeat")
        caller.gateway.sessions.expire()
    assert (await caller.get(f"/sessions/{session_id}"))["status"] == "open"


async def test_a_ttl_of_zero_never_expires_a_session(start: Any) -> None:
    async with start(session_ttl_s=0) as caller:
        session_id = await caller.open_session()
        caller.clock.now += 1e9
        caller.gateway.sessions.expire()
        session = await caller.get(f"/sessions/{session_id}")
        assert (session["status"], session["ttl_s"]) == ("open", None)


async def test_a_session_says_how_long_its_owner_may_be_silent(start: Any) -> None:
    async with start(session_ttl_s=90) as caller:
        session_id = await caller.open_session()
        assert (await caller.get(f"/sessions/{session_id}"))["ttl_s"] == 90
        assert (await caller.send("POST", f"/sessions/{session_id}/heartbeat")).json()["ttl_s"] == 90


async def test_an_expired_session_is_closed_only_after_its_running_operation(caller: Any, payloads: Any) -> None:
    session_id = await caller.open_session()
    run_id = await caller.open_run(session_id)
    caller.provider.gate.clear()
    await caller.post(run_id, 0, "forward_backward", payloads.training())
    await caller.until_executing()
    caller.clock.now += TTL + 1
    caller.gateway.sessions.expire()
    session = await caller.get(f"/sessions/{session_id}")
    assert (session["status"], session["runs"][0]["status"]) == ("open", "cancelling")
    caller.provider.gate.set()
    await caller.wait(run_id, 0)
    caller.gateway.sessions.expire()
    assert (await caller.get(f"/sessions/{session_id}"))["reason"] == "expired"


async def test_sessions_expire_without_being_asked(start: Any) -> None:
    async with start(session_ttl_s=0.2) as caller:
        session_id = await caller.open_session()
        caller.clock.now += 1
        while (await caller.get(f"/sessions/{session_id}"))["status"] == "open":
            await asyncio.sleep(0.01)


async def test_a_restart_keeps_results_and_fails_what_lived_in_memory(start: Any, payloads: Any) -> None:
    async with start() as caller:
        session_id = await caller.open_session()
        finished, lost = await caller.open_run(session_id), await caller.open_run(session_id)
        state_id = (await caller.do(finished, 0, "save_state", {}))["state_id"]
        await caller.send("POST", f"/runs/{finished}/finish")
        done = await caller.do(lost, 0, "forward_backward", payloads.training())
        await caller.post(lost, 2, "optim_step", payloads.optim_step)
        caller.provider.gate.clear()
        await caller.post(lost, 1, "forward_backward", payloads.training())
        await caller.until_executing()
        bill = (await caller.get(f"/runs/{lost}"))["usage"]
        clock = caller.clock
    clock.now += 10 * TTL
    async with start(clock=clock) as caller:
        runs = {run["run_id"]: run for run in (await caller.get(f"/sessions/{session_id}"))["runs"]}
        assert runs[finished]["status"] == "finished"
        assert (runs[lost]["status"], runs[lost]["reason"]) == ("failed", "run_lost")
        assert runs[lost]["usage"] == bill
        assert (await caller.wait(lost, 0))["result"] == done
        assert [(await caller.wait(lost, seq_id))["status"] for seq_id in (1, 2)] == ["failed", "cancelled"]
        assert (await caller.wait(lost, 1))["error"]["code"] == "run_lost"
        assert (await caller.post(lost, 0, "forward_backward", payloads.training())).json()["status"] == "succeeded"
        assert (await caller.post(lost, 3, "save_state", {})).json()["error"]["code"] == "run_not_active"
        restored = await caller.open_run(session_id, initial={"state_id": state_id})
        await caller.do(restored, 0, "save_state", {})
        # Ten TTLs passed while the gateway was down; its owner could not have been heard.
        caller.gateway.sessions.expire()
        assert (await caller.get(f"/sessions/{session_id}"))["status"] == "open"


async def test_files_that_nobody_was_told_of_are_swept_at_the_start(start: Any, tmp_path: Path) -> None:
    async with start() as caller:
        run_id = await caller.open_run()
        state_id = (await caller.do(run_id, 0, "save_state", {}))["state_id"]
    (tmp_path / "states" / "st_half.safetensors").write_bytes(b"half")
    (tmp_path / "artifacts" / "art_half.tar.gz.tmp").write_bytes(b"half")
    async with start():
        assert [path.name for path in (tmp_path / "states").iterdir()] == [f"{state_id}.safetensors"]
        assert list((tmp_path / "artifacts").iterdir()) == []


async def test_payloads_are_kept_only_until_an_operation_has_ended(start: Any, payloads: Any, tmp_path: Path) -> None:
    async with start() as caller:
        run_id = await caller.open_run()
        await caller.do(run_id, 0, "forward_backward", payloads.training())
        with pytest.raises(LookupError):
            caller.gateway._parts.ledger.operations.payload(run_id, 0)
        await caller.post(run_id, 2, "forward_backward", payloads.training())
        kept = caller.gateway._parts.ledger.operations.payload(run_id, 2)
        assert kept == payloads.training()


def test_a_ledger_of_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    ledger = Ledger(path)
    ledger._database.execute("PRAGMA user_version = 99")
    ledger.close()
    with pytest.raises(LedgerError, match="ledger version 99"):
        Ledger(path)
