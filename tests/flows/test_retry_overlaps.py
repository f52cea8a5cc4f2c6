"""Retry pressed at the wrong moment: twice, on a run that is at work, while a hook still closes. Two runners poll.

One runner never starts a second process of a flow run while its first one lives; with two, which is what a work pool
has, the other takes it at once. So these are the harder cases.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from flow_probes import lines
from lineage_probes import most_executions
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import StateType
from served import FaultyGateway, Served, kill_flow_runs_of, read, serving, state_of, until
from tiny_configs import SHORT, tiny_config
from tiny_pipelines import pipeline_config

from whitney.labels import ATTEMPT

SLOW_S = 6.0

# Enough slow cycles that a run is still at work when another process has started, however slowly that starts.
MANY_CYCLES, EACH_SLOW_S = 10, 1.5


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyGateway]:
    with ExitStack() as stack:
        yield FaultyGateway(tmp_path_factory.mktemp("overlaps"), stack)


@pytest.fixture(scope="module")
def runners(
    prefect_server: str, gateway: FaultyGateway, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Served]]:
    folder, environment = tmp_path_factory.mktemp("runners"), gateway.environment
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                serving(
                    "grpo",
                    "pipeline",
                    api_url=prefect_server,
                    folder=folder,
                    name="two-runners",
                    environment=environment,
                )
            )
            for _ in range(2)
        ]


def config(folder: Path, **fields: Any) -> Any:
    return tiny_config("grpo", folder, save_every=1, rewards=SHORT, **fields)


async def at_work(gateway: FaultyGateway, flow_run_id: UUID, attempt: int) -> None:
    """Until an attempt has posted what it samples, and waits for it."""

    async def look() -> bool | None:
        sessions = await gateway.sessions(flow_run_id)
        runs = [run for session in sessions if session.labels[ATTEMPT] == str(attempt) for run in session.runs]
        return True if any(run.next_seq_id >= 2 for run in runs) else None

    await until(look, f"attempt {attempt} to be at work")


async def completed(served: Served, flow_run_id: UUID, attempts: int) -> None:
    """Until the flow run is Completed, by the attempt of that number, for good."""

    async def look() -> bool | None:
        run = await read(flow_run_id)
        return True if state_of(run) == StateType.COMPLETED and run.run_count == attempts else None

    await until(look, f"attempt {attempts} to complete", served.log)


async def states_of(flow_run_id: UUID) -> list[StateType]:
    """All the states that the flow run has been in."""
    async with get_client() as api:
        answer = await api.request("GET", "/flow_run_states/", params={"flow_run_id": str(flow_run_id)})
    return [StateType(state["type"]) for state in answer.json()]


def require_lineage(folder: Path, cycles: int) -> list[int]:
    """Each cycle once, in an unbroken chain; which attempt has trained each."""
    states = lines(folder / "states.jsonl")
    assert [state["block"] for state in states] == list(range(cycles))
    assert [state["parent_state_id"] for state in states] == [None, *(state["state_id"] for state in states[:-1])]
    return [state["attempt"] for state in states]


def chain(folder: Path) -> Any:
    """A pipeline whose second stage is that run."""
    many = {"cycles": MANY_CYCLES, "groups_per_cycle": 2, "group_size": 4, "rewards": SHORT}
    stages = [{"algorithm": "sft", "config": {"batch_size": 2, "cycles": 1}}, {"algorithm": "grpo", "config": many}]
    return pipeline_config(folder, *stages, shared={"evaluation": {"enabled": False}})


@pytest.mark.parametrize("flow", ["grpo", "pipeline"])
async def test_retry_on_a_run_that_is_at_work_ends_the_older_attempt_and_the_newest_goes_on(
    runners: list[Served], gateway: FaultyGateway, tmp_path: Path, flow: str
) -> None:
    gateway.fail({"action": "slow_operation", "kind": "sample", "nth": 3, "times": 1000, "delay_s": EACH_SLOW_S})
    served = runners[0]
    below = flow == "pipeline"
    folder = tmp_path / ("chain/2-grpo" if below else "tiny-grpo")
    flow_run_id = await served.press_run(flow, chain(tmp_path) if below else config(tmp_path, cycles=MANY_CYCLES))

    async def in_second_cycle() -> bool | None:
        return True if (folder / "states.jsonl").exists() else None

    await until(in_second_cycle, "the second cycle", served.log)
    training = UUID(json.loads((folder / "config.json").read_text())["flow_run_id"])
    assert (training != flow_run_id) is below
    assert await served.press_retry(flow_run_id, times=2) == ["ACCEPT", "ACCEPT"]
    await at_work(gateway, training, 2)
    gateway.fail()
    await completed(served, flow_run_id, attempts=2)
    # The older attempt has ended without a word: the flow run was never shown as failed while the newer one trained.
    assert StateType.FAILED not in await states_of(flow_run_id)
    first, second = sorted(await gateway.all_closed(training), key=lambda session: session.labels[ATTEMPT])
    assert [run.status for run in first.runs] == ["cancelled"]
    assert [run.status for run in second.runs] == ["finished"]
    attempts = require_lineage(folder, MANY_CYCLES)
    assert (attempts[0], attempts[-1]) == (1, 2)
    assert attempts == sorted(attempts)
    assert most_executions(gateway.process) == 1


async def test_retry_while_a_killed_attempts_hook_is_still_closing_waits_for_nobody_and_leaves_nothing_open(
    runners: list[Served], gateway: FaultyGateway, tmp_path: Path
) -> None:
    gateway.fail({"action": "slow_operation", "kind": "sample", "delay_s": SLOW_S})
    served = runners[0]
    flow_run_id = await served.press_run("grpo", config(tmp_path))
    await at_work(gateway, flow_run_id, 1)
    kill_flow_runs_of(*runners)
    crashed = await served.ended(flow_run_id)
    assert state_of(crashed) == StateType.CRASHED
    # The hook polls until the slow operation has ended: the session is open, and Retry is already there to be pressed.
    (session,) = await gateway.sessions(flow_run_id)
    assert session.status == "open"
    await served.press_retry(flow_run_id)
    await completed(served, flow_run_id, attempts=2)
    sessions = await gateway.all_closed(flow_run_id)
    assert sorted(session.labels[ATTEMPT] for session in sessions) == ["1", "2"]
    assert require_lineage(tmp_path / "tiny-grpo", cycles=2) == [2, 2]
    assert most_executions(gateway.process) == 1
