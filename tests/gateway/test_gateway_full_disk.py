"""A full disk: said by the file's name and with what to do, nothing half-written left, work going on in room made."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from gateway.launch import start_gateway
from gateway.storage import DataDirectory, DataDirectoryError
from whitney.routes import PREFIX

if TYPE_CHECKING:
    from conftest import Caller, Payloads

NO_DELAYS = ("--delays", '{"sample": 0, "default": 0}')


@contextmanager
def nothing_can_be_written(caller: Caller) -> Iterator[None]:
    connection = caller.gateway._parts.ledger._database._connection
    connection.execute("PRAGMA query_only = ON")
    try:
        yield
    finally:
        connection.execute("PRAGMA query_only = OFF")


@contextmanager
def no_file_may_grow(pid: int = 0) -> Iterator[None]:
    """What a full disk is to a process; 0 is this one."""
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


@contextmanager
def unusable(folder: Path) -> Iterator[None]:
    """No file can be written into `folder`, while the ledger can be; root passes every permission."""
    aside = folder.with_name("aside")
    folder.rename(aside)
    folder.write_text("a file where the folder should be")
    try:
        yield
    finally:
        folder.unlink()
        aside.rename(folder)


@pytest.mark.parametrize(
    ("operation", "folder", "prefix"), [("save_state", "states", "st_"), ("export_lora", "artifacts", "art_")]
)
async def test_a_file_that_cannot_be_written_is_named_and_the_gateway_goes_on(
    caller: Caller, tmp_path: Path, operation: str, folder: str, prefix: str
) -> None:
    session_id = await caller.open_session()
    run_id = await caller.open_run(session_id)
    await caller.do(run_id, 0, operation, {})
    with unusable(tmp_path / folder):
        await caller.post(run_id, 1, operation, {})
        outcome = await caller.wait(run_id, 1)
    error = outcome["error"]
    assert (outcome["status"], error["code"]) == ("failed", "file_not_written")
    assert error["message"].startswith(f"{folder}/{prefix}")
    assert "): make room where the gateway keeps its data" in error["message"]
    assert str(tmp_path) not in error["message"]
    run = await caller.get(f"/runs/{run_id}")
    assert (run["status"], run["reason"]) == ("failed", f"operation_failed: seq_id 1 ({operation}): file_not_written")
    assert len(list((tmp_path / folder).iterdir())) == 1
    await caller.do(await caller.open_run(session_id), 0, operation, {})


async def test_a_request_that_cannot_be_recorded_is_answered_with_the_reason_and_may_be_repeated(
    caller: Caller,
) -> None:
    connection = caller.gateway._parts.ledger._database._connection
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages}")  # SQLite's own idea of a full disk
    body = {"create_key": "s", "labels": {"filling": "x" * 10_000}}
    answer = await caller.send("POST", "/sessions", body)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["retryable"]) == (507, "ledger_not_written", True)
    assert "ledger.sqlite cannot be written (database or disk is full)" in error["message"]
    assert "filling" not in answer.text
    assert (await caller.get("/sessions"))["sessions"] == []
    connection.execute("PRAGMA max_page_count = 1000000")
    assert (await caller.send("POST", "/sessions", body)).status_code == 200


async def test_a_state_that_could_not_be_recorded_takes_no_room(caller: Caller, tmp_path: Path) -> None:
    run_id = await caller.open_run()
    caller.provider.gate.clear()
    await caller.post(run_id, 0, "save_state", {})
    await caller.until_executing()
    with nothing_can_be_written(caller):
        caller.provider.gate.set()
        async with asyncio.timeout(10):
            while run_id not in caller.provider.released:
                await asyncio.sleep(0.01)
    assert list((tmp_path / "states").iterdir()) == []


async def test_deleting_makes_room_also_where_the_ledger_has_none_to_record_it(caller: Caller, tmp_path: Path) -> None:
    state_id = (await caller.do(await caller.open_run(), 0, "save_state", {}))["state_id"]
    with nothing_can_be_written(caller):
        assert (await caller.send("DELETE", f"/states/{state_id}")).status_code == 507
        assert list((tmp_path / "states").iterdir()) == []
    assert (await caller.get(f"/states/{state_id}"))["complete"] is False
    assert (await caller.send("DELETE", f"/states/{state_id}")).status_code == 200
    assert (await caller.send("GET", f"/states/{state_id}")).status_code == 410


def test_a_key_and_a_notice_that_cannot_be_written_are_named_and_leave_no_half(tmp_path: Path) -> None:
    data = DataDirectory(tmp_path)
    with no_file_may_grow():
        for name, write in (("api_key", data.api_key), ("gateway.json", lambda: data.announce({"pid": 1}))):
            with pytest.raises(DataDirectoryError, match=f"{name} cannot be written: File too large; make room"):
                write()
            assert not (tmp_path / name).exists()
    assert len(data.api_key()) > 40
    assert (tmp_path / "api_key").stat().st_mode & 0o777 == 0o600


def test_a_gateway_whose_disk_fills_up_says_so_and_goes_on_when_there_is_room_again(
    tmp_path: Path, payloads: Payloads
) -> None:
    with start_gateway(tmp_path, provider="delay", extra_args=NO_DELAYS) as gateway:
        headers = {"authorization": f"Bearer {gateway.api_key}"}
        with httpx.Client(base_url=gateway.base_url + PREFIX, headers=headers, trust_env=False, timeout=30) as http:
            session_id = http.post("/sessions", json={"create_key": "s"}).json()["session_id"]
            run = {"provider": "local", "model": "tiny"}
            run_id = http.post(f"/sessions/{session_id}/runs", json=run | {"create_key": "r"}).json()["run_id"]
            step = {"kind": "optim_step", "payload": payloads.optim_step}
            with no_file_may_grow(gateway.pid):
                for _ in range(2):
                    refused = http.post(f"/runs/{run_id}/operations", json=step | {"seq_id": 0})
                    error = refused.json()["error"]
                    assert (refused.status_code, error["code"]) == (507, "ledger_not_written")
                    assert "make room on its disk" in error["message"]
            accepted = http.post(f"/runs/{run_id}/operations", json=step | {"seq_id": 0})
            assert accepted.status_code == 202
            done = http.get(f"/runs/{run_id}/operations/0", params={"wait_s": 20}).json()
            assert done["status"] == "succeeded"
            assert http.get(f"/runs/{run_id}").json()["usage"]["operations"] == {"optim_step": 1}
