"""What tests of flows look at: the run folder, the gateway's ledger, the flow runs that Prefect has, and a Retry."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    ArtifactFilter,
    ArtifactFilterFlowRunId,
    FlowRunFilter,
    FlowRunFilterId,
    FlowRunFilterParentFlowRunId,
    TaskRunFilter,
    TaskRunFilterFlowRunId,
)
from prefect.client.schemas.objects import FlowRun, State
from prefect.flow_engine import run_flow
from prefect.flows import Flow
from prefect.states import AwaitingRetry, Pending

from algorithms.spans import Spans
from flows.checks.prepare import prepare
from flows.config import CONFIGS, FlowConfig
from flows.counts.operations import planned_operations
from flows.plan.plan import Plan, plan_of_run
from gateway.launch import GatewayProcess
from gateway.storage import DataDirectory
from whitney.client import WhitneyClient
from whitney.errors import ConnectionFailedError
from whitney.labels import FLOW_RUN
from whitney.sequence import OperationHandle
from whitney.settings import WhitneySettings
from whitney.types import Operation, Session

POLICY = "policy"
PATIENCE_S = 30.0

# The fixtures of conftest.py that are functions.
GatewayOf = Callable[[str], GatewayProcess]
Visit = Callable[[str], GatewayProcess]
Taught = Callable[[str], Awaitable[dict[str, Any]]]
Trained = Callable[[str, str], Awaitable[dict[str, Any]]]


def lines(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSONL file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def metrics(summary: dict[str, Any]) -> list[dict[str, Any]]:
    """The cycles of a run."""
    return lines(Path(summary["run_folder"]) / "metrics.jsonl")


def plan_of(summary: dict[str, Any]) -> Counter[str]:
    """The operations that a run's own configuration plans."""
    folder = Path(summary["run_folder"])
    record = json.loads((folder / "config.json").read_text())
    config = CONFIGS[record["algorithm"]].model_validate(record["config"])
    return planned_operations(record["algorithm"], config, len(lines(folder / "heldout.jsonl")))


async def planned(summary: dict[str, Any]) -> Plan:
    """The plan of a run's own configuration."""
    record = json.loads((Path(summary["run_folder"]) / "config.json").read_text())
    client, prepared = await prepare(record["algorithm"], CONFIGS[record["algorithm"]].model_validate(record["config"]))
    await client.aclose()
    return await plan_of_run(prepared)


def typically(spans: Spans) -> Counter[str]:
    """What is typically planned; counts are exact, so that they are whole."""
    assert all(float(span.typical).is_integer() for span in spans.values()), spans
    return Counter({name: int(span.typical) for name, span in spans.items()})


async def all_sessions() -> list[tuple[str, str]]:
    """(session id, status) of everything the gateway of the environment knows."""
    async with WhitneyClient(WhitneySettings()) as client:
        return [(session.session_id, session.status) for session in await client.list_sessions()]


async def sessions_of(flow_run_id: str | UUID) -> list[Session]:
    """A flow run's sessions, of all its attempts, with their runs."""
    async with WhitneyClient(WhitneySettings()) as client:
        return await client.list_sessions(label=(FLOW_RUN, str(flow_run_id)))


def ledger(gateway: GatewayProcess, flow_run_id: str | UUID, attempt: int = 1) -> dict[str, Counter[str]]:
    """What the gateway has billed an attempt: the operations of each of its runs, by the run's name."""
    billed: defaultdict[str, Counter[str]] = defaultdict(Counter)
    prefix = f"{flow_run_id}:{attempt}"
    with sqlite3.connect(DataDirectory(gateway.data_dir).ledger) as connection:
        rows = connection.execute(
            "SELECT create_key, kind, operations FROM runs JOIN billing USING (run_id) "
            "WHERE create_key = ? OR instr(create_key, ? || ':') = 1",  # attempt 1 is not attempt 10
            [prefix, prefix],
        ).fetchall()
    connection.close()
    for create_key, kind, operations in rows:
        billed[create_key.removeprefix(prefix).removeprefix(":") or POLICY][kind] += operations
    return dict(billed)


async def descendants(flow_run_id: str | UUID) -> list[FlowRun]:
    """The flow runs below a flow run."""
    found: list[FlowRun] = []
    parents = [UUID(str(flow_run_id))]
    async with get_client() as api:
        while parents:
            below = FlowRunFilter(parent_flow_run_id=FlowRunFilterParentFlowRunId(any_=parents))
            children = await api.read_flow_runs(flow_run_filter=below, limit=200)
            found += children
            parents = [child.id for child in children]
    return found


async def page_of(flow_run_id: Any) -> str:
    """What the UI shows of a pipeline."""
    wanted = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[flow_run_id]))
    async with get_client() as api:
        found = await api.read_artifacts(artifact_filter=wanted)
    pages = [one for one in found if one.key and one.key.endswith("-pipeline")]
    return str(max(pages, key=lambda page: page.created).data)


async def count_tasks(flow_runs: list[FlowRun], prefix: str, expected: int) -> int:
    """How many task runs of some flow runs have a name that begins so.

    Prefect records task runs behind their back, from events: fewer than expected are waited for, more are not excused.
    """
    within = TaskRunFilter(flow_run_id=TaskRunFilterFlowRunId(any_=[run.id for run in flow_runs]))
    deadline = time.monotonic() + PATIENCE_S
    while True:
        async with get_client() as api:
            tasks = await api.read_task_runs(task_run_filter=within, limit=200)
        count = sum(task.name.startswith(prefix) for task in tasks)
        if count >= expected or time.monotonic() > deadline:
            return count
        await asyncio.sleep(0.2)


async def first_attempt(flow: Flow[..., Any], config: FlowConfig) -> tuple[UUID, State[Any]]:
    """Run a flow as a worker would, by its flow run; how that ended."""
    async with get_client() as api:
        parameters = {"config": config.model_dump(mode="json")}
        flow_run = await api.create_flow_run(flow, parameters=parameters, state=Pending())
    return flow_run.id, await ended(flow, flow_run)


async def retry(flow: Flow[..., Any], flow_run_id: UUID) -> State[Any]:
    """What the Retry button does: the same flow run is scheduled again, and a worker picks it up."""
    async with get_client() as api:
        await api.set_flow_run_state(flow_run_id, AwaitingRetry(), force=True)
        (flow_run,) = await api.read_flow_runs(flow_run_filter=FlowRunFilter(id=FlowRunFilterId(any_=[flow_run_id])))
    return await ended(flow, flow_run)


async def ended(flow: Flow[..., Any], flow_run: FlowRun) -> State[Any]:
    """Run a flow run in this process, as a worker's would; how it ended."""
    state: State[Any] = await run_flow(flow, flow_run=flow_run, return_type="state")  # type: ignore[misc] # a union
    return state


def lose_answer(patch: pytest.MonkeyPatch, kind: str, nth: int) -> Callable[[], None]:
    """From the nth on, answers to operations of a kind get lost; the returned function mends the connection."""
    real, seen = WhitneyClient.await_operation, 0

    async def losing(self: WhitneyClient, run_id: str, seq_id: int) -> Operation:
        nonlocal seen
        operation = await real(self, run_id, seq_id)
        seen += operation.kind == kind
        if operation.kind == kind and seen >= nth:
            raise ConnectionFailedError(f"the answer to {kind} {seen} is lost")
        return operation

    patch.setattr(WhitneyClient, "await_operation", losing)
    return lambda: patch.setattr(WhitneyClient, "await_operation", real)


def sent_payloads(patch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """(kind, payload) of every operation that is submitted from now on, in order."""
    sent: list[tuple[str, dict[str, Any]]] = []
    real = WhitneyClient._submit

    def submit(self: WhitneyClient, handle: OperationHandle) -> OperationHandle:
        sent.append((handle.kind, json.loads(handle.encoded or b"{}")))
        return real(self, handle)

    patch.setattr(WhitneyClient, "_submit", submit)
    return sent
