"""What goes by age, and what stays whatever its age."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

if TYPE_CHECKING:
    from conftest import Caller, Payloads, Start

DAY = 86400.0


async def _open(caller: Caller, **labels: str) -> str:
    body = {"create_key": uuid4().hex, "labels": {f"whitney.{name}": value for name, value in labels.items()}}
    session_id: str = (await caller.send("POST", "/sessions", body)).json()["session_id"]
    return session_id


async def _saved(caller: Caller, session_id: str, operation: str = "save_state", **fields: Any) -> tuple[str, str]:
    """A run of that session, and what it has saved."""
    run_id = await caller.open_run(session_id, **fields)
    result = await caller.do(run_id, 0, operation, {})
    return run_id, result["state_id"] if operation == "save_state" else result["artifact_id"]


async def _close(caller: Caller, session_id: str) -> None:
    for run in (await caller.get(f"/sessions/{session_id}"))["runs"]:
        await caller.send("POST", f"/runs/{run['run_id']}/cancel")
    assert (await caller.send("POST", f"/sessions/{session_id}/close")).status_code == 200


async def _sweep_after(caller: Caller, days: float) -> None:
    caller.clock.now += days * DAY
    await caller.gateway.retention.sweep()


async def _status(caller: Caller, state_id: str) -> int:
    return (await caller.send("GET", f"/states/{state_id}")).status_code


async def test_what_a_closed_session_saved_goes_after_its_days_and_says_so(
    caller: Caller, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "gateway")
    session_id = await _open(caller)
    run_id, state_id = await _saved(caller, session_id)
    _, artifact_id = await _saved(caller, session_id, "export_lora")
    size = sum(path.stat().st_size for folder in ("states", "artifacts") for path in (tmp_path / folder).iterdir())
    await _close(caller, session_id)
    await _sweep_after(caller, 30)
    assert await _status(caller, state_id) == 200
    await _sweep_after(caller, 0.001)
    for path in (f"/states/{state_id}", f"/artifacts/{artifact_id}"):
        answer = await caller.send("GET", path)
        error = answer.json()["error"]
        assert (answer.status_code, error["details"]["gone_by"]) == (410, "retention")
        assert "--keep-days" in error["message"]
    assert [list((tmp_path / folder).iterdir()) for folder in ("states", "artifacts")] == [[], []]
    assert f"deleted 2 states and artifacts ({size} bytes), and the results of 2 operations" in caplog.text
    assert (await caller.get(f"/runs/{run_id}"))["usage"]["operations"] == {"save_state": 1}


async def test_what_a_session_that_is_open_saved_stays(caller: Caller) -> None:
    _, state_id = await _saved(caller, await _open(caller))
    await _sweep_after(caller, 400)
    assert await _status(caller, state_id) == 200


async def test_what_a_run_of_an_open_session_began_from_stays_until_that_is_closed(caller: Caller) -> None:
    first = await _open(caller)
    _, state_id = await _saved(caller, first)
    _, unused = await _saved(caller, first)
    await _close(caller, first)
    second = await _open(caller)
    await caller.open_run(second, initial={"state_id": state_id})
    await _sweep_after(caller, 31)
    assert [await _status(caller, file_id) for file_id in (state_id, unused)] == [200, 410]
    await _close(caller, second)
    await _sweep_after(caller, 0)
    assert await _status(caller, state_id) == 410


@pytest.mark.parametrize("label", ["flow_run", "root_flow_run"])
async def test_what_another_attempt_of_an_open_sessions_flow_run_saved_stays(caller: Caller, label: str) -> None:
    first = await _open(caller, **{label: "flow-1", "attempt": "1"})
    _, state_id = await _saved(caller, first)
    await _close(caller, first)
    second = await _open(caller, **{label: "flow-1", "attempt": "2"})
    other = await _open(caller, **{label: "flow-2", "attempt": "1"})
    await _sweep_after(caller, 31)
    assert await _status(caller, state_id) == 200
    await _close(caller, second)
    await _sweep_after(caller, 0)
    assert await _status(caller, state_id) == 410
    assert (await caller.get(f"/sessions/{other}"))["status"] == "open"


async def test_results_of_sessions_that_were_closed_long_ago_are_dropped_and_nothing_else_of_them(
    caller: Caller, payloads: Payloads
) -> None:
    session_id = await _open(caller)
    run_id = await caller.open_run(session_id)
    await caller.do(run_id, 0, "forward_backward", payloads.training())
    await _sweep_after(caller, 40)
    await _close(caller, session_id)
    await _sweep_after(caller, 30)
    assert (await caller.wait(run_id, 0))["status"] == "succeeded"
    await _sweep_after(caller, 0.001)
    again = await caller.post(run_id, 0, "forward_backward", payloads.training())
    for answer in (await caller.send("GET", f"/runs/{run_id}/operations/0"), again):
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error["retryable"]) == (410, "result_expired", False)
    assert (await caller.get(f"/runs/{run_id}"))["usage"]["operations"] == {"forward_backward": 1}
    other = await caller.post(run_id, 0, "save_state", {})
    assert other.json()["error"]["code"] == "seq_conflict"


async def test_zero_days_keep_everything_for_ever(start: Start) -> None:
    async with start(keep_days=0) as caller:
        session_id = await _open(caller)
        run_id, state_id = await _saved(caller, session_id)
        await _close(caller, session_id)
        await _sweep_after(caller, 9999)
        assert await _status(caller, state_id) == 200
        assert (await caller.wait(run_id, 0))["result"] == {"state_id": state_id}


async def test_a_state_that_a_run_is_being_created_from_is_not_swept_under_it(caller: Caller) -> None:
    first = await _open(caller)
    _, state_id = await _saved(caller, first)
    await _close(caller, first)
    second = await _open(caller)
    caller.provider.gate.clear()
    creating = asyncio.create_task(caller.open_run(second, initial={"state_id": state_id}))
    while not caller.gateway.files.in_use:
        await asyncio.sleep(0)
    await _sweep_after(caller, 31)
    caller.provider.gate.set()
    await creating
    assert await _status(caller, state_id) == 200
    assert not caller.gateway.files.in_use


async def test_a_file_that_a_kill_left_behind_its_record_goes_at_the_next_start(start: Start, tmp_path: Path) -> None:
    async with start() as caller:
        _, state_id = await _saved(caller, await _open(caller))
        caller.gateway._parts.ledger.files.mark_gone([state_id], caller.clock(), "retention")
    async with start() as caller:
        assert list((tmp_path / "states").iterdir()) == []
        assert await _status(caller, state_id) == 410


async def test_the_sweep_comes_by_itself(start: Start) -> None:
    async with start(session_ttl_s=0.2) as caller:  # which is how often it looks
        session_id = await _open(caller)
        _, state_id = await _saved(caller, session_id)
        await _close(caller, session_id)
        caller.clock.now += 31 * DAY
        while await _status(caller, state_id) == 200:
            await asyncio.sleep(0.01)
