"""deployments/prefect.yaml, deployed with Prefect's own command and run by Prefect's own worker."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.responses import DeploymentResponse
from prefect.client.schemas.schedules import IntervalSchedule
from prefect.states import Cancelled

from gateway.launch import GatewayProcess
from whitney.client import WhitneyClient
from whitney.labels import FLOW_RUN
from whitney.settings import WhitneySettings

ROOT = Path(__file__).resolve().parents[2]


def prefect(*arguments: str, folder: Path, url: str) -> None:
    command = [sys.executable, "-m", "prefect", *arguments]
    done = subprocess.run(
        command, cwd=folder, env=os.environ | {"PREFECT_API_URL": url}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_reaper_deploys_with_its_schedule_and_a_worker_anywhere_runs_it(
    endpoint: GatewayProcess, prefect_server: str, tmp_path: Path
) -> None:
    asyncio.run(_make_pool())
    prefect(
        "--no-prompt",
        *("deploy", "--prefect-file", "deployments/prefect.yaml", "--name", "reap"),
        folder=ROOT,
        url=prefect_server,
    )
    deployment, flow_run, session_id = asyncio.run(_leave_a_session_and_ask_for_a_run())
    (entry,) = deployment.schedules
    assert entry.active
    assert isinstance(entry.schedule, IntervalSchedule)
    assert entry.schedule.interval == timedelta(seconds=300)
    assert not deployment.paused
    # The worker starts in a folder that has nothing to do with the project.
    prefect("worker", "start", "--pool", "whitney", "--run-once", folder=tmp_path, url=prefect_server)
    ended, status = asyncio.run(_outcome(flow_run, session_id))
    assert ended.state is not None
    assert ended.state.is_completed(), ended.state
    assert status == "closed"


async def _make_pool() -> None:
    async with get_client() as api:
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
