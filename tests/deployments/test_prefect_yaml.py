"""deployments/prefect.yaml, deployed with Prefect's own command and run by Prefect's own worker."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.responses import DeploymentResponse
from prefect.client.schemas.schedules import IntervalSchedule
from prefect.exceptions import ObjectAlreadyExists
from prefect.flows import Flow, load_flow_from_entrypoint
from prefect.states import Cancelled

from cli.app import run_command
from deployments.names import HEARTBEAT, SESSION_LIMIT
from deployments.prefect_file import PREFECT_FILE, Entry, shipped
from flows.config.pipeline import PipelineConfig
from flows.load_config import load_config
from gateway.launch import GatewayProcess
from whitney.client import WhitneyClient
from whitney.labels import FLOW_RUN
from whitney.settings import WhitneySettings

ROOT = Path(__file__).resolve().parents[2]


ENTRIES = shipped()

OWN = """
algorithm = "sft"
cycles = 1
batch_size = 4
[model]
name = "tiny"
[data]
source = "mine.jsonl"
heldout_fraction = 0
[evaluation]
enabled = false
"""


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_a_shipped_deployment_is_whole(entry: Entry) -> None:
    flow: Flow[..., Any] = load_flow_from_entrypoint(entry.entrypoint, use_placeholder_flow=False)
    flow.validate_parameters(entry.parameters)
    assert entry.description
    assert entry.tags == ["whitney"]
    assert entry.work_pool.name == "whitney"
    assert entry.concurrency_limit is not None, "what becomes of overlapping runs is said"
    assert entry.work_pool.job_variables == {"env": HEARTBEAT}, (
        "zombies are found by the silence that this makes audible"
    )
    assert entry.schedules
    for schedule in entry.schedules:
        assert schedule.schedule().active == (entry.name == "reap"), "nothing that trains bills unasked"
        assert schedule.cron is None or schedule.timezone, "a cron line names its time zone"
    config = entry.parameters.get("config")
    assert entry.name == "reap" or config["session_limit"] == SESSION_LIMIT


def test_the_pipeline_that_is_deployed_is_the_one_whose_file_says_why() -> None:
    _, written = load_config(PREFECT_FILE.parent / "configs" / "pipeline.toml")
    (entry,) = (entry for entry in ENTRIES if entry.entrypoint == "flows.pipeline.pipeline")
    deployed = PipelineConfig.model_validate(entry.parameters["config"])
    assert deployed.model_copy(update={"session_limit": None}) == written, "copy configs/pipeline.toml to prefect.yaml"


def prefect(*arguments: str, folder: Path, url: str) -> None:
    command = [sys.executable, "-m", "prefect", *arguments]
    done = subprocess.run(
        command, cwd=folder, env=os.environ | {"PREFECT_API_URL": url}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_prefect_deploys_the_file_too_and_a_worker_anywhere_runs_the_reaper(
    endpoint: GatewayProcess,
    prefect_server: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asyncio.run(_make_pool())
    prefect(
        "--no-prompt",
        *("deploy", "--prefect-file", "deployments/prefect.yaml", "--all"),
        folder=ROOT,
        url=prefect_server,
    )
    monkeypatch.chdir(ROOT)
    assert run_command(["deploy"]) == 0
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("deployment ")]
    assert len(said) == len(ENTRIES)
    assert all(": unchanged" in line for line in said), "`whitney deploy` registers what `prefect deploy` does"
    deployment, flow_run, session_id = asyncio.run(_leave_a_session_and_ask_for_a_run())
    (entry,) = deployment.schedules
    assert entry.active
    assert isinstance(entry.schedule, IntervalSchedule)
    assert entry.schedule.interval == timedelta(seconds=300)
    assert not deployment.paused
    own = _deploy_and_ask_for_a_run(tmp_path / "own", monkeypatch)
    # The worker starts in a folder that has nothing to do with either project.
    prefect("worker", "start", "--pool", "whitney", "--run-once", folder=tmp_path, url=prefect_server)
    ended, status = asyncio.run(_outcome(flow_run, session_id))
    assert ended.state is not None
    assert ended.state.is_completed(), ended.state
    assert status == "closed"
    (summary,) = (tmp_path / "own" / "runs").glob("*/summary.json")
    assert json.loads(summary.read_text())["flow_run_id"] == str(own), "relative paths begin where it was deployed from"


def _deploy_and_ask_for_a_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> UUID:
    """Of a configuration whose data lie beside it."""
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "mine.jsonl").write_text('{"prompt": "1 + 1 =", "answer": "2"}\n' * 20)
    (folder / "mine.toml").write_text(OWN)
    assert run_command(["deploy", "mine.toml", "--name", "own"]) == 0
    with get_client(sync_client=True) as api:
        return api.create_flow_run_from_deployment(api.read_deployment_by_name("sft/own").id).id


async def _make_pool() -> None:
    async with get_client() as api:
        with suppress(ObjectAlreadyExists):  # the server is shared
            await api.create_work_pool(WorkPoolCreate(name="whitney", type="process"))


async def _leave_a_session_and_ask_for_a_run() -> tuple[DeploymentResponse, FlowRun, str]:
    """A session whose flow run has been cancelled, and a run of the deployment that is to close it."""
    async with get_client() as api, WhitneyClient(WhitneySettings()) as client:
        deployment = await api.read_deployment_by_name("reap/reap")
        flow_run = await api.create_flow_run_from_deployment(deployment.id)
        owner = await api.create_flow_run_from_deployment(deployment.id, state=Cancelled())
        session = await client.create_session(create_key=str(owner.id), labels={FLOW_RUN: str(owner.id)})
    return deployment, flow_run, session.session_id


async def _outcome(flow_run: FlowRun, session_id: str) -> tuple[FlowRun, str]:
    async with get_client() as api, WhitneyClient(WhitneySettings()) as client:
        return await api.read_flow_run(flow_run.id), (await client.get_session(session_id)).status
