"""Saved files: where they come from, and those that were damaged or have gone: said, by name, before they are used."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gateway.__main__ import main

if TYPE_CHECKING:
    from conftest import Caller


@pytest.mark.parametrize(
    ("operation", "kind", "folder"), [("save_state", "state", "states"), ("export_lora", "artifact", "artifacts")]
)
async def test_a_damaged_file_is_no_start_for_a_run(
    caller: Caller, tmp_path: Path, operation: str, kind: str, folder: str
) -> None:
    file_id = (await caller.do(await caller.open_run(), 0, operation, {}))[f"{kind}_id"]
    await caller.open_run(initial={f"{kind}_id": file_id})
    (path,) = (tmp_path / folder).iterdir()
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    body = caller.run_body(initial={f"{kind}_id": file_id})
    answer = await caller.send("POST", f"/sessions/{await caller.open_session()}/runs", body)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["retryable"]) == (409, f"{kind}_corrupt", False)
    assert file_id in error["message"]
    assert path.name in error["message"]


async def _saved(caller: Caller, run_id: str, seq_id: int = 0) -> str:
    state_id: str = (await caller.do(run_id, seq_id, "save_state", {}))["state_id"]
    return state_id


async def test_a_state_names_what_it_came_from_also_when_that_has_been_deleted(caller: Caller) -> None:
    labels = {"whitney.flow_run": "flow-1", "whitney.attempt": "2"}
    body = {"create_key": "s", "labels": labels}
    session_id = (await caller.send("POST", "/sessions", body)).json()["session_id"]
    first = await caller.open_run(session_id)
    root, second = await _saved(caller, first), await _saved(caller, first, 1)
    third = await _saved(caller, await caller.open_run(initial={"state_id": second}))
    for state_id in (root, second):
        await caller.send("DELETE", f"/states/{state_id}")
    grandchild = await caller.get(f"/states/{third}")
    assert (grandchild["parent_state_id"], grandchild["labels"]) == (second, {})
    fourth = await caller.get(f"/states/{await _saved(caller, first, 2)}")
    assert (fourth["parent_state_id"], fourth["seq_id"]) == (second, 2)
    assert (fourth["session_id"], fourth["labels"], fourth["complete"]) == (session_id, labels, True)


async def test_the_first_state_of_a_run_has_no_parent_or_the_adapter_that_the_run_began_from(caller: Caller) -> None:
    run_id = await caller.open_run()
    root = await caller.get(f"/states/{await _saved(caller, run_id)}")
    assert (root["parent_state_id"], root["parent_artifact_id"]) == (None, None)
    artifact_id = (await caller.do(run_id, 1, "export_lora", {}))["artifact_id"]
    child = await _saved(caller, await caller.open_run(initial={"artifact_id": artifact_id}))
    state = await caller.get(f"/states/{child}")
    assert (state["parent_state_id"], state["parent_artifact_id"]) == (None, artifact_id)


@pytest.mark.parametrize("damage", ["cut", "missing"])
async def test_a_state_whose_file_is_cut_or_missing_is_not_complete_and_no_start_for_a_run(
    caller: Caller, tmp_path: Path, damage: str
) -> None:
    state_id = await _saved(caller, await caller.open_run())
    path = tmp_path / "states" / f"{state_id}.safetensors"
    size = path.stat().st_size
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:10])
    else:
        path.unlink()
    state = await caller.get(f"/states/{state_id}")
    assert (state["complete"], state["size_bytes"]) == (False, size)
    answer = await caller.send(
        "POST", f"/sessions/{await caller.open_session()}/runs", caller.run_body(initial={"state_id": state_id})
    )
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["retryable"]) == (409, "state_corrupt", False)
    assert f"states/{path.name}" in error["message"]
    assert str(tmp_path) not in answer.text
    found = 10 if damage == "cut" else None
    assert error["details"] == {"file": f"states/{path.name}", "size_bytes": found, "saved_size_bytes": size}


async def test_an_artifact_whose_file_was_cut_is_not_handed_out(caller: Caller, tmp_path: Path) -> None:
    artifact_id = (await caller.do(await caller.open_run(), 0, "export_lora", {}))["artifact_id"]
    (tmp_path / "artifacts" / f"{artifact_id}.tar.gz").write_bytes(b"cut")
    answer = await caller.send("GET", f"/artifacts/{artifact_id}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "artifact_corrupt")


@pytest.mark.parametrize(("operation", "kind"), [("save_state", "state"), ("export_lora", "artifact")])
async def test_a_deleted_file_is_said_to_be_gone_and_deleting_it_again_does_no_harm(
    caller: Caller, tmp_path: Path, operation: str, kind: str
) -> None:
    file_id = (await caller.do(await caller.open_run(), 0, operation, {}))[f"{kind}_id"]
    for _ in range(2):
        assert (await caller.send("DELETE", f"/{kind}s/{file_id}")).status_code == 200
        caller.clock.now += 3600
    assert list((tmp_path / f"{kind}s").iterdir()) == []
    run = caller.send(
        "POST", f"/sessions/{await caller.open_session()}/runs", caller.run_body(initial={f"{kind}_id": file_id})
    )
    for answer in (await caller.send("GET", f"/{kind}s/{file_id}"), await run):
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error["retryable"]) == (410, f"{kind}_expired", False)
        assert error["details"].items() >= {"gone_at": "1970-01-12T13:46:40+00:00", "gone_by": "request"}.items()
        assert "was deleted on request at 1970-01-12T13:46:40+00:00" in error["message"]


async def test_a_chain_of_states_can_be_read_across_one_that_was_deleted(caller: Caller) -> None:
    run = await caller.open_run()
    first, second = [(await caller.do(run, seq_id, "save_state", {}))["state_id"] for seq_id in range(2)]
    before = (await caller.send("GET", f"/states/{second}")).json()
    assert before["parent_state_id"] == first
    await caller.send("DELETE", f"/states/{second}")
    gone = (await caller.send("GET", f"/states/{second}")).json()["error"]["details"]["lineage"]
    assert gone == {**before, "complete": False}


def test_a_ledger_of_garbage_is_said_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "ledger.sqlite").write_bytes(b"no database at all " * 500)
    assert main(["--provider", "delay", "--port", "0", "--data-dir", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"gateway: the ledger {tmp_path / 'ledger.sqlite'} cannot be used")
