"""Files that were damaged after they were saved: said, by name, before anything is trained from them."""

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


def test_a_ledger_of_garbage_is_said_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "ledger.sqlite").write_bytes(b"no database at all " * 500)
    assert main(["--provider", "delay", "--port", "0", "--data-dir", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"gateway: the ledger {tmp_path / 'ledger.sqlite'} cannot be used")
