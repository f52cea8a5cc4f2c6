"""A deployment's run that is cancelled in the UI, or whose process is killed: other processes see to its session."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from flow_probes import ledger, lines
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import StateType
from prefect.states import Cancelling
from served import FaultyGateway, Served, kill_flow_runs_of, serving, state_of, until
from tiny_configs import grpo_config


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyGateway]:
    with ExitStack() as stack:
        yield FaultyGateway(tmp_path_factory.mktemp("faulty"), stack)


@pytest.fixture(scope="module")
def served(prefect_server: str, gateway: FaultyGateway, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    with serving("grpo", api_url=prefect_server, folder=folder, environment=gateway.environment) as started:
        yield started


async def test_cancel_in_the_middle_of_an_operation_leaves_nothing_open(
    served: Served, gateway: FaultyGateway, tmp_path: Path
) -> None:
    gateway.fail({"action": "slow_operation", "kind": "sample", "nth": 2, "delay_s": 6})
    flow_run_id = await served.press_run("grpo", grpo_config(tmp_path, save_every=1, evaluation={"enabled": False}))

    async def sampling() -> bool | None:
        runs = [run for session in await gateway.sessions(flow_run_id) for run in session.runs]
        return True if any(run.next_seq_id >= 3 for run in runs) else None

    await until(sampling, "the run to sample", served.log)
    async with get_client() as api:
        await api.set_flow_run_state(flow_run_id, Cancelling())
    assert state_of(await served.ended(flow_run_id)) == StateType.CANCELLED
    (session,) = await gateway.all_closed(flow_run_id)
    assert [run.status for run in session.runs] == ["cancelled"]


async def test_a_killed_flow_process_has_its_session_closed_by_the_runners_hook(
    served: Served, gateway: FaultyGateway, tmp_path: Path
) -> None:
    gateway.fail()
    endless = grpo_config(tmp_path, cycles=500, save_every=1, name="killed", evaluation={"enabled": False})
    flow_run_id = await served.press_run("grpo", endless)

    async def training() -> bool | None:
        return True if (tmp_path / "killed" / "metrics.jsonl").exists() else None

    await until(training, "a cycle to be trained", served.log)
    kill_flow_runs_of(served)
    assert state_of(await served.ended(flow_run_id)) == StateType.CRASHED
    (session,) = await gateway.all_closed(flow_run_id)
    assert [run.status for run in session.runs] == ["cancelled"]


async def test_what_a_killed_run_has_measured_between_blocks_is_adopted_and_billed_once(
    served: Served, gateway: FaultyGateway, tmp_path: Path
) -> None:
    gateway.fail({"action": "slow_operation", "kind": "forward_backward", "nth": 2, "delay_s": 4})
    evaluation = {"samples": 1, "max_prompts": 3, "every": 1, "pass_at": [1]}
    config = grpo_config(tmp_path, save_every=1, cycles=3, name="measured", evaluation=evaluation)
    flow_run_id = await served.press_run("grpo", config)
    folder = tmp_path / "measured"

    async def measured() -> list[dict[str, object]] | None:
        file = folder / "evaluations.jsonl"
        return rows if file.exists() and len(rows := lines(file)) == 2 else None

    before = await until(measured, "the measurement after the first block", served.log)
    kill_flow_runs_of(served)
    await served.ended(flow_run_id)
    await gateway.all_closed(flow_run_id)
    gateway.fail()
    await served.press_retry(flow_run_id)
    assert state_of(await served.ended(flow_run_id, attempt=2)) == StateType.COMPLETED
    rows = lines(folder / "evaluations.jsonl")
    assert rows[:2] == before
    assert [(row["when"], row["attempt"]) for row in rows[1:]] == [("cycle-1", 1), ("cycle-2", 2), ("after", 2)]
    first, second = (ledger(gateway.process, flow_run_id, attempt)["policy"]["sample"] for attempt in (1, 2))
    again = json.loads((folder / "summary.json").read_text())["redone"]["by_kind"].get("sample", 0)
    assert again in range(5), "what the second cycle had drawn before the kill"
    # Three prompts a measurement and four groups a cycle: one cycle before the kill, two after it.
    assert (first, second) == (2 * 3 + 4 + again, 2 * 3 + 2 * 4)
