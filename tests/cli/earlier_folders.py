"""Folders as earlier runs leave them, and what a resume of them says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.app import run_command
from cli.run_data import Endpoints
from flows.config import SftConfig

FLOW_RUN_ID = "6f1c2a9e-0000-4000-8000-000000000000"


def run_folder(
    *, flow_run_id: str = FLOW_RUN_ID, states: tuple[dict[str, Any], ...] = (), **endpoints: str | None
) -> Path:
    """A folder as a run of three cycles leaves it."""
    folder = Path("runs/r")
    folder.mkdir(parents=True)
    config = SftConfig(name="r", cycles=3, model={"name": "tiny"}, data={"source": "addition-1digit"})
    record = {"algorithm": "sft", "config": config.model_dump(mode="json"), "flow_run_id": flow_run_id}
    (folder / "config.json").write_text(json.dumps(record))
    (folder / "states.jsonl").write_text("".join(json.dumps(row) + "\n" for row in states))
    known = {"prefect_api_url": None, "prefect_home": None, "whitney_base_url": None, "gateway_data_dir": None}
    Endpoints(**{**known, "directory": str(Path.cwd()), **endpoints}).record(folder)
    return folder


def refused(*arguments: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert run_command(["run", "--resume", *arguments]) == 2
    return capsys.readouterr().err
