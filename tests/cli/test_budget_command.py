"""`whitney run` with a budget: what the terminal says of a run that is stopped, and how it is gone on with."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from own_servers import CONFIG, command, summary_in, unconfigured

from cli.app import run_command

STOPPED = "budget: budget.max_operations = 8: 6 used; cycle 3 may need 4 more, its end included"


@pytest.mark.usefixtures("loggers_as_they_were")
def test_a_run_that_its_budget_has_stopped_says_how_to_go_on_and_its_own_servers_data_stay_for_it(
    prefect_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tiny.toml").write_text(CONFIG)
    environment = unconfigured(tmp_path) | {"PREFECT_API_URL": prefect_server}

    def run(*arguments: str) -> str:
        done = subprocess.run(
            command(*arguments), cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return " ".join(done.stdout.split())

    shown = run("tiny.toml", "--name", "r", "--set", "budget.max_operations=8")
    assert "budget 75%" in shown
    assert f"Stopped early: {STOPPED}" in shown
    assert "Left out: cycle 3" in shown
    assert "To go on: whitney run --resume runs/r --set budget.max_operations=MORE" in shown
    stopped: dict[str, Any] = summary_in(tmp_path)
    assert stopped["cycles"] == 2

    assert run_command(["run", "--resume", "r"]) == 0
    assert "was stopped by budget.max_operations, nothing was allocated" in " ".join(capsys.readouterr().out.split())
    assert summary_in(tmp_path) == stopped

    run("--resume", "r", "--set", "budget.max_operations=20")
    resumed = summary_in(tmp_path)
    assert (resumed["stopped"], resumed["cycles"], resumed["open_sessions"]) == (None, 3, 0)
    assert resumed["redone"]["by_kind"] == {"export_lora": 1}, "the adapter is exported again, and nothing else"
    assert not list(tmp_path.glob(".whitney/gateways/*")), "it is finished now"
