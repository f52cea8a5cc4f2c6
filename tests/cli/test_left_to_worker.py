"""A deployment's run that is gone on with: scheduled for its worker, taken back, or refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from earlier_folders import refused, run_folder
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import State, StateType
from prefect.states import Completed, Failed, Pending, Running, Suspended

from cli.app import run_command

pytestmark = pytest.mark.usefixtures("loggers_as_they_were", "prefect_server")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def deployed_run(api: SyncPrefectClient, state: State[Any], config: dict[str, Any]) -> UUID:
    """The flow run of a deployment, in this state; its folder is `runs/r`."""
    deployment_id = api.create_deployment(api.create_flow_from_name("sft"), f"resume-{uuid4().hex}")
    flow_run_id = api.create_flow_run_from_deployment(deployment_id, parameters={"config": config}).id
    api.set_flow_run_state(flow_run_id, state, force=True)
    (run_folder(flow_run_id=str(flow_run_id)) / "endpoints.json").unlink()
    return flow_run_id


def stopped_at(limit: int, *, used: int, enough: int) -> dict[str, Any]:
    """Make `runs/r` one that this limit on operations has stopped; the configuration it ran with."""
    path, budget = Path("runs/r/config.json"), {"used": used, "limit": limit}
    record = json.loads(path.read_text())
    record["config"]["budget"]["max_operations"] = limit
    path.write_text(json.dumps(record))
    summary = {
        "run_folder": "runs/r",
        "stopped": f"budget: budget.max_operations = {limit}: {used} used",
        "budget": {
            "reached": "budget.max_operations",
            "used": {"budget.max_operations": budget},
            "left_out": ["cycle 3"],
            "go_on_with": enough,
        },
        "operations": {"optim_step": 2},
        "open_sessions": 0,
        "adapter": "runs/r/adapter",
        "artifact_id": "ar_1",
    }
    (path.parent / "summary.json").write_text(json.dumps(summary))
    return dict(record["config"])


@pytest.mark.parametrize(
    ("state", "status", "told"),
    [
        (Completed(), 0, "runs/r is a deployment's run. Scheduled: a worker goes on with it, nothing runs here"),
        (Failed(), 0, "Scheduled: a worker goes on with it"),
        (Suspended(), 2, "runs/r waits for a person's answer: Resume on http"),
        (Running(), 2, "runs/r has not ended, its flow run is Running: wait for it, or Cancel it on http"),
    ],
    ids=lambda value: value.name if isinstance(value, State) else "",
)
def test_a_run_of_a_deployment_is_scheduled_for_its_worker_with_what_is_asked_for(
    state: State[Any], status: int, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with get_client(sync_client=True) as api:
        flow_run_id = deployed_run(api, state, {})
        assert run_command(["run", "--resume", "r", "--set", "budget.max_operations=800"]) == status
        said = capsys.readouterr()
        assert told in said.out + said.err
        flow_run = api.read_flow_run(flow_run_id)
    assert flow_run.state is not None
    if status:
        assert (flow_run.state.name, flow_run.parameters) == (state.name, {"config": {}})
        return
    assert flow_run.state.name == "AwaitingRetry"
    assert flow_run.parameters["config"]["budget"]["max_operations"] == 800
    assert f"/runs/flow-run/{flow_run_id}" in said.out
    assert "Billed" not in said.out


def test_a_resume_that_a_worker_has_not_begun_is_told_by_its_budget_and_can_be_taken_back(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def resumed(*limit: str) -> tuple[int, str, State[Any], dict[str, Any]]:
        status = run_command(["run", "--resume", "r", *limit])
        said = capsys.readouterr()
        flow_run = api.read_flow_run(flow_run_id)
        assert flow_run.state is not None
        return status, said.out + said.err, flow_run.state, flow_run.parameters["config"]["budget"]

    with get_client(sync_client=True) as api:
        flow_run_id = deployed_run(api, Running(), {})
        stopped = {"type": "COMPLETED", "name": "Stopped", "message": "stopped early", "data": {"storage_key": "here"}}
        api.request("POST", "/flow_runs/{id}/set_state", path_params={"id": flow_run_id}, json={"state": stopped})
        config = stopped_at(9, used=8, enough=40)
        api.update_flow_run(flow_run_id, parameters={"config": config})

        status, told, state, budget = resumed("--set", "budget.max_operations=20")
        assert (status, state.name, budget["max_operations"]) == (0, "AwaitingRetry", 20)
        assert "budget.max_operations = 20 will likely stop it again before its end" in told
        assert "40 would likely bring it there" in told

        status, told, state, budget = resumed("--set", "budget.max_operations=40")
        assert (status, state.name, budget["max_operations"]) == (0, "AwaitingRetry", 40)
        assert "likely" not in told
        assert "Budget:    budget.max_operations = 40\n" in told

        status, told, state, budget = resumed()
        assert (status, state.name, budget["max_operations"]) == (2, "AwaitingRetry", 40)
        assert "runs/r is scheduled already, with budget.max_operations = 40: a worker goes on with it. To take" in told
        assert "whitney run --resume runs/r --set budget.max_operations=9\n" in told

        status, told, state, budget = resumed("--set", "budget.max_operations=9")
        assert (status, state.name, budget["max_operations"]) == (0, "Stopped", 9), told
        assert (state.type, state.message) == (StateType.COMPLETED, "stopped early")
        assert state.data.storage_key == "here", "its result is where it was"
        assert "runs/r was scheduled, and is taken back: no worker goes on with it" in told
        assert "was stopped by budget.max_operations, and has no more of it now: nothing was allocated" in told

        api.set_flow_run_state(flow_run_id, Running(), force=True)
        status, told, state, budget = resumed()
        assert (status, state.name, budget["max_operations"]) == (2, "Running", 9)
        assert "runs/r has not ended, its flow run is Running" in told


def test_what_no_worker_would_go_on_with_is_not_scheduled(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with get_client(sync_client=True) as api:
        flow_run_id = deployed_run(api, Failed(), {"of": "the server"})

        def still_there(*arguments: str, name: str = "Failed") -> str:
            said = refused("r", *arguments, capsys=capsys)
            flow_run = api.read_flow_run(flow_run_id)
            assert flow_run.state is not None
            assert (flow_run.state.name, flow_run.parameters) == (name, {"config": {"of": "the server"}})
            return said

        told = still_there("--set", "optimizer.learning_rate=1e-3", "--allow-drift")
        assert "--allow-drift: runs/r is a deployment's run, and its worker looks for drift itself. Start a new" in told
        assert "Give the worker WHITNEY_ALLOW_DRIFT=1 in its environment" in still_there("--allow-drift")

        def set_while_a_worker_begins(client: SyncPrefectClient, *arguments: Any, **values: Any) -> Any:
            api.set_flow_run_state(flow_run_id, Pending(), force=True)
            return update(client, *arguments, **values)

        update = SyncPrefectClient.update_flow_run
        with monkeypatch.context() as patched:
            patched.setattr(SyncPrefectClient, "update_flow_run", set_while_a_worker_begins)
            told = still_there("--set", "budget.max_operations=800", name="Pending")
        assert "a worker has just begun with runs/r, and nothing was changed: wait for its end" in told

        api.set_flow_run_state(flow_run_id, Failed(), force=True)
        deployment_id = api.read_flow_run(flow_run_id).deployment_id
        assert deployment_id is not None
        api.request("DELETE", "/deployments/{id}", path_params={"id": deployment_id})
        told = still_there("--set", "budget.max_operations=800")
        assert "runs/r is the run of a deployment that has been deleted: no worker can go on with it" in told
