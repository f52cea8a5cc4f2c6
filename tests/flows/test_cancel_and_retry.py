"""Cancel and Retry, as the buttons of the Prefect UI do it: on a deployment, from outside, in other processes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import psutil
import pytest
from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.exceptions import ObjectNotFound
from prefect.states import Cancelling, Scheduled
from tiny_configs import grpo_config

from gateway.launch import GatewayProcess, start_gateway
from whitney.client import WhitneyClient
from whitney.labels import ATTEMPT, FLOW_RUN
from whitney.settings import WhitneySettings
from whitney.types import Session

PATIENCE_S = 120.0
T = TypeVar("T")

# The first run's second `sample` takes a while, so that it can be cancelled in; the second `save_state` is refused.
FAULTS = [
    {"action": "slow_operation", "kind": "sample", "run": 0, "nth": 2, "delay_s": 6},
    {"action": "status", "status": 400, "route": "run_operation", "kind": "save_state", "nth": 2},
]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    folder = tmp_path_factory.mktemp("faulty")
    script = folder / "faults.json"
    script.write_text(json.dumps({"faults": FAULTS}))
    options = ["--deterministic", "--faults", str(script)]
    with start_gateway(folder, provider="local", models=("tiny",), extra_args=options) as started:
        yield started


@pytest.fixture(scope="module")
def served(prefect_server: str, gateway: GatewayProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The GRPO flow as a deployment, served by a process of its own; its name."""
    name = f"served-{os.getpid()}"
    with (tmp_path_factory.mktemp("served") / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("serve_grpo.py")), name],
            cwd=Path(__file__).resolve().parents[2],
            stdout=log,
            stderr=subprocess.STDOUT,
            env={
                **os.environ,
                "PREFECT_API_URL": prefect_server,
                "PREFECT_RUNNER_POLL_FREQUENCY": "1",
                "WHITNEY_BASE_URL": gateway.base_url,
                "WHITNEY_API_KEY": gateway.api_key,
            },
            start_new_session=True,
        )
        try:
            yield f"grpo/{name}"
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


@pytest.fixture
def whitney(gateway: GatewayProcess) -> WhitneyClient:
    return WhitneyClient(WhitneySettings(base_url=gateway.base_url, api_key=gateway.api_key))


async def until(ask: Callable[[], Awaitable[T | None]], what: str) -> T:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        answer = await ask()
        if answer:
            return answer
        await asyncio.sleep(0.2)
    raise AssertionError(f"waited {PATIENCE_S:g} s in vain for {what}")


async def start(api: PrefectClient, deployment: str, config: dict[str, Any]) -> UUID:
    """What the UI's Run button does, once the deployment is there."""

    async def find() -> Any:
        with suppress(ObjectNotFound):
            return await api.read_deployment_by_name(deployment)
        return None

    found = await until(find, "the deployment")
    return (await api.create_flow_run_from_deployment(found.id, parameters={"config": config})).id


async def ended(api: PrefectClient, flow_run_id: UUID, count: int = 1) -> FlowRun:
    async def look() -> FlowRun | None:
        run = await api.read_flow_run(flow_run_id)
        return run if run.state is not None and run.state.is_final() and run.run_count >= count else None

    return await until(look, "the flow run to end")


async def sessions_of(whitney: WhitneyClient, flow_run_id: UUID) -> list[Session]:
    return await whitney.list_sessions(label=(FLOW_RUN, str(flow_run_id)))


async def closed(whitney: WhitneyClient, flow_run_id: UUID, count: int) -> list[Session]:
    async def look() -> list[Session] | None:
        sessions = await sessions_of(whitney, flow_run_id)
        return sessions if len(sessions) == count and all(s.status == "closed" for s in sessions) else None

    return await until(look, "the sessions to close")


async def test_cancel_in_the_middle_of_an_operation_leaves_nothing_open(
    served: str, whitney: WhitneyClient, tmp_path: Path
) -> None:
    config = grpo_config(tmp_path, save_every=1, evaluation={"enabled": False}).model_dump(mode="json")
    async with get_client() as api, whitney:
        flow_run_id = await start(api, served, config)

        async def sampling() -> bool:
            sessions = await sessions_of(whitney, flow_run_id)
            return any(run.next_seq_id >= 3 for session in sessions for run in session.runs)

        await until(sampling, "the run to sample")
        await api.set_flow_run_state(flow_run_id, Cancelling())
        run = await ended(api, flow_run_id)
        (session,) = await closed(whitney, flow_run_id, 1)
    assert run.state is not None
    assert run.state.type == StateType.CANCELLED
    assert [run.status for run in session.runs] == ["cancelled"]


async def test_retry_adopts_finished_blocks_and_ends_with_the_adapter_of_a_run_that_never_failed(
    served: str, whitney: WhitneyClient, tmp_path: Path
) -> None:
    config = grpo_config(tmp_path, save_every=1, evaluation={"enabled": False}).model_dump(mode="json")
    async with get_client() as api, whitney:
        flow_run_id = await start(api, served, config)
        failed = await ended(api, flow_run_id)
        assert failed.state is not None
        assert failed.state.type == StateType.FAILED
        await closed(whitney, flow_run_id, 1)
        await api.set_flow_run_state(flow_run_id, Scheduled(name="AwaitingRetry"), force=True)
        retried = await ended(api, flow_run_id, count=2)
        assert retried.state is not None
        assert retried.state.type == StateType.COMPLETED
        sessions = await closed(whitney, flow_run_id, 2)
        undisturbed = await ended(api, await start(api, served, {**config, "name": "undisturbed"}))
        assert undisturbed.state is not None
        assert undisturbed.state.type == StateType.COMPLETED
    assert sorted(session.labels[ATTEMPT] for session in sessions) == ["1", "2"]
    shown = {key: value for key, value in retried.labels.items() if key.startswith("whitney.session.")}
    assert shown == {f"whitney.session.{session.labels[ATTEMPT]}": session.session_id for session in sessions}
    states = [json.loads(line) for line in (tmp_path / "tiny-grpo" / "states.jsonl").read_text().splitlines()]
    assert [(state["block"], state["attempt"]) for state in states] == [(0, 1), (1, 2), (2, 2)]
    assert [state["parent_state_id"] for state in states[1:]] == [state["state_id"] for state in states[:-1]]
    summaries = [json.loads((tmp_path / name / "summary.json").read_text()) for name in ("tiny-grpo", "undisturbed")]
    assert summaries[0]["adapter_sha256"] == summaries[1]["adapter_sha256"]


async def test_a_killed_flow_process_has_its_session_closed_by_the_runners_hook(
    served: str, whitney: WhitneyClient, tmp_path: Path
) -> None:
    endless = grpo_config(tmp_path, cycles=500, save_every=1, name="killed", evaluation={"enabled": False})
    async with get_client() as api, whitney:
        flow_run_id = await start(api, served, endless.model_dump(mode="json"))

        async def training() -> bool:
            return (tmp_path / "killed" / "metrics.jsonl").exists()

        await until(training, "a cycle to be trained")
        (runner,) = [one for one in psutil.Process().children() if any("serve_grpo" in word for word in one.cmdline())]
        for child in runner.children():  # `serve` starts a flow run as a multiprocessing child
            if any("spawn_main" in word for word in child.cmdline()):
                child.kill()
        run = await ended(api, flow_run_id)
        (session,) = await closed(whitney, flow_run_id, 1)
    assert run.state is not None
    assert run.state.type == StateType.CRASHED
    assert [run.status for run in session.runs] == ["cancelled"]
