"""`whitney run` with a budget: what the terminal says of a run that is stopped, and how it is gone on with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from own_servers import CONFIG, summary_in

from cli.app import run_command
from gateway.launch import GatewayProcess

PRICES = "[operations]\nforward_backward = 2\noptim_step = 1\n"
STOPPED = "budget: budget.max_cost = 8: 6 used; cycle 3 may need 3 more, its end included"


@pytest.mark.usefixtures("loggers_as_they_were", "prefect_server")
def test_a_run_that_its_budget_has_stopped_says_how_to_go_on_and_goes_on_with_more(
    endpoint: GatewayProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("tiny.toml").write_text(CONFIG)
    Path("prices.toml").write_text(PRICES)

    def run(*arguments: str) -> tuple[int, str]:
        status = run_command(["run", *arguments])
        said = capsys.readouterr()
        return status, " ".join((said.out + said.err).split())

    status, shown = run("tiny.toml", "--name", "r", "--set", "budget.max_minutes=1e-6")
    assert status == 1, "there is no adapter"
    assert "the run failed: budget.max_minutes = 1e-06: " in shown
    assert "cycle 1 was to come next. No block is saved yet, so there is no adapter. Go on with a higher" in shown
    assert "`whitney run --resume runs/r`" in shown
    assert "Traceback" not in shown

    limits = ["--set", "budget.max_minutes=60", "--set", "budget.max_cost=8", "--set", "budget.prices=prices.toml"]
    status, shown = run("--resume", "r", *limits)
    assert status == 0, shown
    assert "budget 75%" in shown
    assert f"Stopped early: {STOPPED}" in shown
    assert "Left out: cycle 3" in shown
    assert "To go on: whitney run --resume runs/r --set budget.max_cost=MORE" in shown
    stopped: dict[str, Any] = summary_in(tmp_path)
    assert stopped["cycles"] == 2

    status, shown = run("--resume", "r")
    assert status == 0, shown
    assert "was stopped by budget.max_cost, nothing was allocated" in shown
    assert summary_in(tmp_path) == stopped

    status, shown = run("--resume", "r", "--set", "budget.max_cost=20")
    assert status == 0, shown
    resumed = summary_in(tmp_path)
    assert (resumed["stopped"], resumed["cycles"], resumed["open_sessions"]) == (None, 3, 0)
    assert resumed["redone"]["by_kind"] == {"export_lora": 1}, "the adapter is exported again, and nothing else"
