"""A pipeline that is killed, fails and is cancelled: each Retry goes on where it was, the last one finishes it.

One flow run of a deployment meets them all. What the gateway has billed each stage, and the adapters, are held beside
those of a pipeline that nothing happened to.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from flow_probes import descendants, lines, page_of
from lineage_probes import most_executions, require_each_cycle_once, require_one_block_redone_at_most
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import StateType
from prefect.states import Cancelling
from served import FaultyGateway, Served, kill_flow_runs_of, serving, state_of, until
from tiny_pipelines import pipeline_config

import flows
from whitney.client import WhitneyClient
from whitney.labels import ROOT_FLOW_RUN
from whitney.types import Session

# Of the second stage that an attempt trains: all of its second cycle is billed when it is ended there.
SLOW_SECOND_SAVE = {"action": "slow_operation", "run": 1, "kind": "save_state", "nth": 2, "delay_s": 10.0}

CYCLES = {"1-sft": 1, "2-rl": 3, "3-opd": 2}
"""Blocks of each stage; the first has six cycles in one."""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyGateway]:
    with ExitStack() as stack:
        yield FaultyGateway(tmp_path_factory.mktemp("pipelines"), stack)


@pytest.fixture(scope="module")
def served(prefect_server: str, gateway: FaultyGateway, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    with serving("pipeline", api_url=prefect_server, folder=folder, environment=gateway.environment) as started:
        yield started


@pytest.fixture
def environment(gateway: FaultyGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in gateway.environment.items():
        monkeypatch.setenv(name, value)


async def sessions_below(gateway: FaultyGateway, flow_run_id: UUID) -> list[Session]:
    async with WhitneyClient(gateway.settings) as whitney:
        return await whitney.list_sessions(label=(ROOT_FLOW_RUN, str(flow_run_id)))


async def all_closed_below(gateway: FaultyGateway, flow_run_id: UUID) -> None:
    async def look() -> bool | None:
        sessions = await sessions_below(gateway, flow_run_id)
        return True if sessions and all(session.status == "closed" for session in sessions) else None

    await until(look, "the sessions of all stages to close")


async def trained(stage: Path, cycles: int, log: Path) -> None:
    """Until a stage has saved so many cycles."""

    async def look() -> bool | None:
        states = stage / "states.jsonl"
        return True if states.exists() and len(lines(states)) >= cycles else None

    await until(look, f"{cycles} cycles of {stage.name}", log)


async def stages_of(flow_run_id: UUID) -> dict[str, Any]:
    """The flow run of each stage, by its name: there is one of each."""
    below = [run for run in await descendants(flow_run_id) if run.name in CYCLES]
    assert len({run.name for run in below}) == len(below), "a stage that failed goes on as the flow run it was"
    return {run.name: run for run in below}


# Each attempt is a process that imports Prefect.
@pytest.mark.timeout(1200)
@pytest.mark.usefixtures("environment")
async def test_a_pipeline_that_is_killed_fails_and_is_cancelled_ends_as_one_that_nothing_happened_to(
    served: Served, gateway: FaultyGateway, tmp_path: Path
) -> None:
    unmeasured = {"evaluation": {"enabled": False}}
    undisturbed = await flows.pipeline(pipeline_config(tmp_path, name="undisturbed", shared=unmeasured))
    config = pipeline_config(tmp_path, shared=unmeasured)
    chain = tmp_path / "chain"

    # In the first attempt the gateway's second run is the second stage's; it is killed in its second cycle.
    gateway.fail(SLOW_SECOND_SAVE)
    flow_run_id = await served.press_run("pipeline", config)
    await trained(chain / "2-rl", 1, served.log)
    kill_flow_runs_of(served)
    assert state_of(await served.ended(flow_run_id)) == StateType.CRASHED
    await all_closed_below(gateway, flow_run_id)
    assert {name: state_of(run) for name, run in (await stages_of(flow_run_id)).items()} == {
        "1-sft": StateType.COMPLETED,
        "2-rl": StateType.RUNNING,  # killed, it could not say otherwise
    }

    # The second attempt goes on there, and fails in the cycle behind.
    gateway.fail({"action": "status", "status": 400, "kind": "save_state", "nth": 2})
    assert await served.press_retry(flow_run_id) == ["ACCEPT"]
    run = await served.ended(flow_run_id, 2)
    assert state_of(run) == StateType.FAILED
    assert "scripted fault" in str(run.state and run.state.message)
    await all_closed_below(gateway, flow_run_id)
    assert len(lines(chain / "2-rl" / "states.jsonl")) == 2

    # The third finishes the second stage, and is cancelled in the third's second cycle.
    gateway.fail(SLOW_SECOND_SAVE)
    await served.press_retry(flow_run_id)
    await trained(chain / "3-opd", 1, served.log)
    async with get_client() as api:
        await api.set_flow_run_state(flow_run_id, Cancelling())
    assert state_of(await served.ended(flow_run_id, 3)) == StateType.CANCELLED
    assert "| 3 opd | opd | **interrupted**: by Cancel, Ctrl-C or SIGTERM |" in await page_of(flow_run_id)
    await all_closed_below(gateway, flow_run_id)

    gateway.fail()
    await served.press_retry(flow_run_id)
    run = await served.ended(flow_run_id, 4)
    assert state_of(run) == StateType.COMPLETED, run.state and run.state.message
    await all_closed_below(gateway, flow_run_id)

    assert most_executions(gateway.process) == 1
    stages = await stages_of(flow_run_id)
    assert {name: run.run_count for name, run in stages.items()} == {"1-sft": 1, "2-rl": 3, "3-opd": 2}
    for name, cycles in CYCLES.items():
        reference = json.loads((tmp_path / "undisturbed" / name / "summary.json").read_text())
        if name != "1-sft":  # one block of six cycles
            require_each_cycle_once(chain / name, reference, cycles=cycles)
            require_one_block_redone_at_most(gateway.process, stages[name].id, chain / name, reference)
        adapter = "adapter/adapter_model.safetensors"
        assert (chain / name / adapter).read_bytes() == (tmp_path / "undisturbed" / name / adapter).read_bytes()
    summary = json.loads((chain / "summary.json").read_text())
    assert summary["adapter_sha256"] == undisturbed["adapter_sha256"]
    assert summary["open_sessions"] == 0
    redone = {one["stage"]: one["redone"]["operations"] for one in summary["stages"]}
    assert (redone["sft"], redone["rl"] > 0) == (0, True), "the cycle that failed at its save was billed twice"
    assert summary["redone"]["operations"] == sum(redone.values())
