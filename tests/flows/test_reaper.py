"""The reaper on a real gateway and real flow runs, one of which loses its process and its runner at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from flow_probes import first_attempt, retry, sessions_of
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId
from prefect.client.schemas.objects import StateType
from prefect.states import Completed, State
from served import FaultyGateway, kill_with_flow_runs, serving, until
from tiny_configs import grpo_config

import flows
from flows.reap import reap
from whitney.client import WhitneyClient
from whitney.labels import ATTEMPT, FLOW_RUN
from whitney.settings import WhitneySettings
from whitney.types import CreateRun, Session

TTL_S = 15.0  # a session beats every 5 s; the gateway itself would end it after 15 s
SILENCE_S = 3.0
BOUND_S = 10.0  # two pauses between beats: what SILENCE_S comes to here
INTERVAL_S = 0.5
BLOCKED_S = 18.0


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyGateway]:
    with ExitStack() as stack:
        yield FaultyGateway(tmp_path_factory.mktemp("reaped"), stack, "--session-ttl-s", str(TTL_S))


@pytest.fixture
def here(prefect_server: str, gateway: FaultyGateway, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FaultyGateway:
    monkeypatch.chdir(tmp_path)
    for name, value in gateway.environment.items():
        monkeypatch.setenv(name, value)
    return gateway


async def sampling(flow_run_id: UUID) -> Session | None:
    """The flow run's open session, once its run has been asked to sample."""
    sessions = await sessions_of(flow_run_id)
    going = [one for one in sessions if one.status == "open" and any(run.next_seq_id >= 2 for run in one.runs)]
    return going[0] if going else None


async def leave_open(key: str, labels: dict[str, str]) -> str:
    """A session with an active run that nobody beats."""
    async with WhitneyClient(WhitneySettings()) as client:
        session = await client.create_session(create_key=key, labels=labels)
        await client.create_run(session.session_id, CreateRun(create_key=key, provider="local", model="tiny"))
        return session.session_id


async def status_of(session_id: str) -> tuple[str, str | None]:
    async with WhitneyClient(WhitneySettings()) as client:
        session = await client.get_session(session_id)
        return session.status, session.reason


async def close(session_id: str) -> None:
    async with WhitneyClient(WhitneySettings()) as client:
        session = await client.get_session(session_id)
        for run in session.runs:
            await client.cancel(run.run_id)
            await client.wait_terminal(run.run_id)
        await client.close_session(session_id)


async def ended_flow_run() -> str:
    async with get_client() as api:
        return str((await api.create_flow_run(reap, state=Completed())).id)


async def report(flow_run_id: UUID) -> str:
    """The one artifact of a run of the reaper."""
    async with get_client() as api:
        of_run = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[flow_run_id]))
        found = await api.read_artifacts(artifact_filter=of_run)
    (artifact,) = [one for one in found if one.type == "markdown"]
    return str(artifact.data)


async def test_a_dry_run_closes_nothing_and_a_failed_closing_fails_the_flow_after_all_others_are_closed(
    here: FaultyGateway,
) -> None:
    ids = [await leave_open(f"ended-{place}", {FLOW_RUN: await ended_flow_run()}) for place in range(2)]
    stranger = await leave_open("stranger", {"owner": "somebody else"})
    assert (await reap(dry_run=True))["would be closed"] == ids
    assert [await status_of(one) for one in ids] == [("open", None)] * 2
    here.fail({"action": "status", "status": 400, "route": "close_session"})
    state: State[Any] = await reap(return_state=True)
    assert state.type == StateType.FAILED
    with pytest.raises(Exception, match=f"could not be closed and is still billing: {ids[0]}$"):
        await state.aresult()
    assert [(await status_of(one))[0] for one in ids] == ["open", "closed"]
    assert state.state_details.flow_run_id is not None
    assert f"COULD NOT CLOSE {ids[0]}: still billing" in await report(state.state_details.flow_run_id)
    assert (await reap())["closed"] == ids[:1], "the next call of the reaper succeeds"
    assert await status_of(stranger) == ("open", None), "a session without our label is not ours"
    await close(stranger)


class ScheduledReaper:
    """The reaper, called again and again as a schedule would; what each call has done, and when it had."""

    def __init__(self) -> None:
        self.calls: list[tuple[float, dict[str, list[str]]]] = []
        self._task = asyncio.create_task(self._work())

    async def _work(self) -> None:
        while True:
            outcome = await reap(silence_s=SILENCE_S)
            self.calls.append((time.monotonic(), outcome))
            await asyncio.sleep(INTERVAL_S)

    async def whole_call(self) -> None:
        """Wait for a call that has begun after now."""
        enough = len(self.calls) + 2

        async def done() -> bool | None:
            if self._task.done():
                await self._task
            return True if len(self.calls) >= enough else None

        await until(done, "the reaper")

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    @property
    def closed(self) -> list[str]:
        return [one for _, outcome in self.calls for one in outcome["closed"]]

    def spared_for_s(self, session_id: str) -> float:
        times = [at for at, outcome in self.calls if session_id in outcome["spared"]]
        return times[-1] - times[0] if times else 0.0


async def test_what_died_with_its_runner_is_closed_and_whatever_is_at_work_is_spared(
    here: FaultyGateway, prefect_server: str, tmp_path: Path
) -> None:
    with serving("grpo", api_url=prefect_server, folder=tmp_path) as runner:
        # Meanwhile: a run whose first attempt fails. Its second will block in a poll, longer than any silence allowed.
        here.fail({"action": "status", "status": 400, "route": "run_operation", "kind": "save_state"})
        config = grpo_config(tmp_path, name="blocked", cycles=1, evaluation={"enabled": False})
        blocked, failed = await first_attempt(flows.grpo, config)
        assert failed.is_failed()
        here.fail({"action": "slow_operation", "kind": "sample", "run": 1, "delay_s": BLOCKED_S})
        long = grpo_config(tmp_path, name="killed", cycles=400, evaluation={"enabled": False})
        killed = await runner.press_run("grpo", long)
        orphan = await until(lambda: sampling(killed), "the served run to sample")
        kill_with_flow_runs(runner)

    reaper = ScheduledReaper()
    second = asyncio.create_task(retry(flows.grpo, blocked))
    alive = await until(lambda: sampling(blocked), "the second attempt to sample")
    left = await leave_open("left", {FLOW_RUN: str(blocked), ATTEMPT: "1"})
    foreign = await leave_open("foreign", {FLOW_RUN: "00000000-0000-4000-8000-000000000000"})
    await reaper.whole_call()
    assert left in reaper.closed, "of an attempt that another has followed"
    assert foreign in reaper.calls[-1][1]["spared"], "not known to this Prefect, but not silent"
    await close(foreign)
    assert (await second).is_completed()
    await reaper.stop()

    assert reaper.spared_for_s(alive.session_id) > BOUND_S, "a poll that blocks for longer than the silence"
    assert sorted(reaper.closed) == sorted([orphan.session_id, left])
    assert await status_of(orphan.session_id) == ("closed", None), "by the reaper, not by the gateway's own TTL"
    async with get_client() as api:
        owner = await api.read_flow_run(killed)
    assert owner.state is not None
    assert owner.state.type == StateType.RUNNING, "no hook has run, and Prefect does not know"
