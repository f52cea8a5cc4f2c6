"""A team's Prefect: a server on PostgreSQL, two workers that share no more than a folder, two pipelines at once.

Minutes, and it needs PostgreSQL's programs: `pytest -m slow tests/flows/test_postgresql.py`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import psutil
import pytest
from flow_probes import descendants, lines
from lineage_probes import most_executions
from postgres import Database, postgresql, prefect_on, programs
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Crashed
from served import RETRY, FaultyGateway, read, state_of, until

from cli.worker import READY
from whitney.client import WhitneyClient
from whitney.labels import ROOT_FLOW_RUN
from whitney.types import Session

BIN = programs()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BIN is None, reason="PostgreSQL's initdb is not installed"),
    pytest.mark.timeout(900),
]

CHAIN = """
algorithm = "pipeline"
name = "{name}"
[shared]
save_every = 1
[shared.model]
name = "tiny"
[shared.lora]
rank = 8
alpha = 16
[shared.data]
source = "addition-1digit"
[shared.optimizer]
learning_rate = 2e-2
[shared.sampling]
max_tokens = 6
[shared.evaluation]
enabled = false
[[stages]]
algorithm = "sft"
[stages.config]
batch_size = 4
cycles = 6
save_every = 6
[[stages]]
name = "rl"
algorithm = "grpo"
[stages.config]
cycles = 5
groups_per_cycle = 2
group_size = 4
rewards = [{{ function = "number" }}, {{ function = "length", arguments = {{ target = 3 }} }}]
[[stages]]
algorithm = "opd"
start_from = "base"
teacher_from = "rl"
[stages.config]
cycles = 2
groups_per_cycle = 2
group_size = 2
[stages.config.lora]
rank = 4
alpha = 8
"""
CHAINS = ("one", "other")
ENDS = {StateType.COMPLETED, StateType.FAILED, StateType.CRASHED, StateType.CANCELLED}


class Team:
    """A shared folder, a Prefect server, a gateway; machines that have a home of their own each."""

    def __init__(self, folder: Path, api_url: str, gateway: FaultyGateway, stack: ExitStack) -> None:
        self.folder = folder
        self.api_url = api_url
        self.gateway = gateway
        self.shared = folder / "shared"
        self.results = self.shared / "results"
        self.results.mkdir(parents=True)
        self._stack = stack

    def environment(self, machine: str) -> dict[str, str]:
        """Of a process on a machine; what Prefect keeps on its own disk, no other sees."""
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith("WHITNEY_")},
            **self.gateway.environment,
            "PREFECT_API_URL": self.api_url,
            "PREFECT_HOME": str(self.folder / machine),
            "PREFECT_WORKER_QUERY_SECONDS": "1",
        }

    def deploy(self, *arguments: str) -> str:
        """`whitney deploy` in the shared folder, from a machine that runs nothing; what it says."""
        done = subprocess.run(
            [sys.executable, "-m", "cli", "deploy", *arguments],
            cwd=self.shared,
            env=self.environment("laptop"),
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def worker(self, machine: str) -> psutil.Process:
        """`whitney worker` on a machine, for one run at a time."""
        return self._stack.enter_context(self._worker(machine))

    @contextmanager
    def _worker(self, machine: str) -> Iterator[psutil.Process]:
        log = self.log(machine)
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "cli", "worker", "--limit", "1", "--name", machine],
                cwd=self.folder,  # not where runs work: the deployment says where
                env=self.environment(machine),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            yield psutil.Process(process.pid)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                try:
                    process.wait(90)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def log(self, machine: str) -> Path:
        """What a worker says."""
        return self.folder / f"{machine}.log"

    async def ready(self, *machines: str) -> None:
        """Until the workers poll."""
        for machine in machines:

            async def look(machine: str = machine) -> bool | None:
                return True if READY in self.log(machine).read_text(errors="replace") else None

            await until(look, f"the worker {machine}", self.log(machine))

    async def press_run(self, name: str) -> UUID:
        """The Run button of a pipeline's deployment."""
        async with get_client() as api:
            deployment = await api.read_deployment_by_name(f"pipeline/{name}")
            return (await api.create_flow_run_from_deployment(deployment.id)).id

    async def blocks(self, name: str, stage: str, number: int) -> None:
        """Until a stage has saved so many blocks."""
        states = self.shared / "runs" / name / stage / "states.jsonl"

        async def look() -> bool | None:
            return True if states.exists() and len(lines(states)) >= number else None

        await until(look, f"{number} blocks of {name}/{stage}")

    async def ended(self, flow_run_id: UUID, attempt: int = 1) -> FlowRun:
        """The flow run, once that attempt has ended."""

        async def look() -> FlowRun | None:
            run = await read(flow_run_id)
            return run if state_of(run) in ENDS and run.run_count >= attempt else None

        return await until(look, f"attempt {attempt} of {flow_run_id}", self.log("north"))

    async def sessions(self, flow_run_id: UUID) -> list[Session]:
        """Of all stages and attempts of a pipeline."""
        async with WhitneyClient(self.gateway.settings) as whitney:
            return await whitney.list_sessions(label=(ROOT_FLOW_RUN, str(flow_run_id)))

    def summary(self, name: str) -> dict[str, Any]:
        """What a pipeline has written at its end."""
        summary: dict[str, Any] = json.loads((self.shared / "runs" / name / "summary.json").read_text())
        return summary


def works_on(worker: psutil.Process) -> set[UUID]:
    """The flow runs that a worker has at work."""
    found = set()
    for child in worker.children(recursive=True):
        with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            if flow_run_id := child.environ().get("PREFECT__FLOW_RUN_ID"):
                found.add(UUID(flow_run_id))
    return found


def lose_power(worker: psutil.Process) -> None:
    """SIGKILL a worker and all that it runs, the worker first: it must not see its flow run die."""
    for one in (worker, *worker.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            one.kill()


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    assert BIN is not None
    with postgresql(BIN) as running:
        yield running


@pytest.fixture(scope="module")
def team(database: Database, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    folder = tmp_path_factory.mktemp("team")
    with ExitStack() as stack:
        api_url = stack.enter_context(prefect_on(database, folder / "server"))
        gateway = FaultyGateway(folder / "gateway", stack)
        stack.enter_context(temporary_settings({PREFECT_API_URL: api_url}))
        yield Team(folder, api_url, gateway, stack)


async def test_two_pipelines_at_once_one_of_whose_workers_dies_end_alike_on_the_other(
    team: Team, database: Database
) -> None:
    for name in CHAINS:
        (team.shared / f"{name}.toml").write_text(CHAIN.format(name=name))
        # Both have a teacher and a student at the end: four sessions.
        said = team.deploy(f"{name}.toml", "--sessions", "4", "--results", str(team.results))
    assert f"result storage {team.results}: unchanged" in said
    workers = {machine: team.worker(machine) for machine in ("north", "south")}
    await team.ready(*workers)
    runs = {await team.press_run(name): name for name in CHAINS}

    async def both_at_work() -> dict[str, UUID] | None:
        at_work = {machine: works_on(worker) & set(runs) for machine, worker in workers.items()}
        return {machine: ids.pop() for machine, ids in at_work.items()} if all(at_work.values()) else None

    at_work = await until(both_at_work, "a pipeline on each worker", team.log("south"))
    lost, kept = at_work["south"], at_work["north"]
    assert lost != kept

    await team.blocks(runs[lost], "2-rl", 2)
    lose_power(workers["south"])
    saved = len(lines(team.shared / "runs" / runs[lost] / "2-rl" / "states.jsonl"))
    assert saved < 5, "it had finished before it was killed"
    async with get_client() as api:  # what the automation does two minutes later
        await api.set_flow_run_state(lost, Crashed(message="no heartbeat"), force=True)
    async with httpx.AsyncClient() as http:
        answer = await http.post(f"{team.api_url}/flow_runs/{lost}/set_state", json=RETRY)
        assert answer.raise_for_status().json()["status"] == "ACCEPT"

    for flow_run_id, attempt in ((kept, 1), (lost, 2)):
        run = await team.ended(flow_run_id, attempt)
        assert state_of(run) == StateType.COMPLETED, run.state and run.state.message
    stages = {run.name: run.run_count for run in await descendants(lost) if run.name in ("1-sft", "2-rl", "3-opd")}
    assert stages == {"1-sft": 1, "2-rl": 2, "3-opd": 1}, "what was finished has been adopted from the shared folder"
    states = lines(team.shared / "runs" / runs[lost] / "2-rl" / "states.jsonl")
    assert [state["attempt"] for state in states[:saved]] == [1] * saved
    assert [state["block"] for state in states] == list(range(5))
    summaries = {flow_run_id: team.summary(name) for flow_run_id, name in runs.items()}
    assert summaries[lost]["adapter_sha256"] == summaries[kept]["adapter_sha256"]
    assert summaries[kept]["redone"]["operations"] == 0

    assert most_executions(team.gateway.process) == 1
    sessions = [session for flow_run_id in runs for session in await team.sessions(flow_run_id)]
    assert {session.status for session in sessions} == {"closed"}
    assert len(sessions) == 3 + 4  # one a stage, and one for what the second attempt went on with
    async with get_client() as api:
        assert (await api.read_global_concurrency_limit_by_name("whitney-sessions")).active_slots == 0
    assert not any((team.folder / machine / "storage").exists() for machine in workers)
    assert any(team.results.iterdir())
    assert int(database.ask("SELECT count(*) FROM flow_run WHERE state_type = 'COMPLETED'")) > 20
