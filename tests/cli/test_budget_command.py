"""`whitney run` with a budget: what the terminal says of a run that is stopped, and how it is gone on with."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from own_servers import CONFIG, summary_in
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId, ArtifactFilterKey
from prefect.client.schemas.objects import State, StateType
from prefect.client.schemas.sorting import ArtifactSort

from cli.app import run_command
from gateway.launch import GatewayProcess

PRICES = "[operations]\nforward_backward = 2\noptim_step = 1\n"
STOPPED = "budget.max_cost = 8.00 USD: 6.00 USD used; cycle 3 may need 3.00 USD more, its end included"


async def shown_in_the_ui(flow_run_id: str) -> tuple[State[Any], str]:
    """How the run is listed, and its page."""
    async with get_client() as api:
        state = (await api.read_flow_run(UUID(flow_run_id))).state
        artifacts = await api.read_artifacts(
            artifact_filter=ArtifactFilter(
                flow_run_id=ArtifactFilterFlowRunId(any_=[UUID(flow_run_id)]), key=ArtifactFilterKey(any_=["r-report"])
            ),
            sort=ArtifactSort.UPDATED_DESC,
        )
    assert state is not None
    return state, str(artifacts[0].data)


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
    assert "the run failed: budget.max_minutes = 0.000001: " in shown
    assert "cycle 1 was to come next. No block is saved yet, so there is no adapter. Go on with a higher" in shown
    assert "`whitney run --resume runs/r`" in shown
    assert "Traceback" not in shown

    limits = ["--set", "budget.max_minutes=60", "--set", "budget.max_cost=8", "--set", "budget.prices=prices.toml"]
    status, shown = run("--resume", "r", *limits)
    assert status == 0, shown
    assert "budget 75%" in shown
    assert f"Stopped early: {STOPPED}" in shown
    assert "Left out: cycle 3" in shown
    assert "To go on: whitney run --resume runs/r --set budget.max_cost=9 " in shown
    assert "Cost: 6.00 USD billed; planned for the whole run: typically 9.00, at most 9.00" in shown
    assert "Planned: for the whole run, typically 10 operations (forward_backward 3 planned, 2 billed; " in shown
    stopped: dict[str, Any] = summary_in(tmp_path)
    assert stopped["cycles"] == 2
    assert stopped["budget"]["go_on_with"] == 9
    assert stopped["cost"] == {
        "currency": "USD",
        "billed": 6.0,
        "planned": {"least": 9.0, "typical": 9.0, "most": 9.0},
    }
    state, page = asyncio.run(shown_in_the_ui(stopped["flow_run_id"]))
    assert (state.type, state.name, state.message) == (StateType.COMPLETED, "Stopped", f"stopped early: {STOPPED}")
    head, first, *_ = page.split("\n\n")
    assert (head, first) == ("# sft · r", f"**Stopped early**: {STOPPED}")
    assert "- to go on: `whitney run --resume runs/r --set budget.max_cost=9`" in page
    assert "- Cost: 6.00 USD billed; planned for the whole run: typically 9.00" in page

    status, shown = run("--resume", "r")
    assert status == 0, shown
    assert "was stopped by budget.max_cost, and has no more of it now: nothing was allocated" in shown
    assert summary_in(tmp_path) == stopped
    status, shown = run("--resume", "r", "--set", "budget.max_cost=5.5")
    assert (status, shown) == (
        2,
        "whitney: budget.max_cost = 5.5: 6 are used already, and stay on the bill: set more; 9 would likely bring it "
        "to its end",
    )
    status, shown = run("--resume", "r", "--set", "budget.max_cost=MORE")
    assert (status, shown.partition("input")[0]) == (2, "whitney: --set: budget.max_cost = 'MORE': ")

    status, shown = run("--resume", "r", "--set", "budget.max_cost=9")
    assert status == 0, shown
    resumed = summary_in(tmp_path)
    assert (resumed["stopped"], resumed["cycles"], resumed["open_sessions"]) == (None, 3, 0)
    assert resumed["redone"]["by_kind"] == {"export_lora": 1}, "the adapter is exported again, and nothing else"
    assert "Billed: 11 operations; " in shown
    assert "of which 1 operation: blocks that were begun and not saved, or another export" in shown
