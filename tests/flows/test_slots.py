"""Open sessions are counted by a Prefect limit: slots taken all at once, given back when the sessions are closed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from flow_probes import Taught, first_attempt, retry, sessions_of
from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.actions import GlobalConcurrencyLimitCreate
from prefect.client.schemas.objects import StateType
from prefect.client.schemas.responses import ConcurrencyLimitWithLeaseResponse
from prefect.logging import disable_run_logger
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Completed
from served import FaultyGateway, Served, kill_flow_runs_of, serving, state_of, until
from tiny_configs import grpo_config, tiny_config

import flows
from cli.prefect_server import free_port, prefect_server, project_server_environment, wait_until_up
from flows.config import ConfigError
from flows.durable import slots
from flows.reap import reap
from gateway.launch import GatewayProcess
from tasks.events import Event, listening
from tasks.session import create_session
from whitney.client import WhitneyClient
from whitney.labels import FLOW_RUN, SLOTS
from whitney.settings import WhitneySettings

# A lease cannot be shorter, and the server looks for ended ones every 15 s.
SHORTEST_LEASE_S, SERVER_LOOKS_EVERY_S = 60.0, 15.0


async def new_limit(size: int) -> str:
    """A global concurrency limit of that many slots, by its name."""
    name = f"sessions-{uuid4().hex[:8]}"
    async with get_client() as api:
        await api.create_global_concurrency_limit(GlobalConcurrencyLimitCreate(name=name, limit=size))
    return name


async def taken(limit: str) -> int:
    async with get_client() as api:
        return (await api.read_global_concurrency_limit_by_name(limit)).active_slots


async def all_back(limit: str) -> bool | None:
    return True if await taken(limit) == 0 else None


async def take(limit: str, count: int = 1) -> str:
    """The lease of slots that the test holds itself."""
    async with get_client() as api:
        answer = await api.increment_concurrency_slots_with_lease([limit], count, "concurrency", lease_duration=600)
    return str(ConcurrencyLimitWithLeaseResponse.model_validate(answer.json()).lease_id)


async def give_back(lease: str) -> None:
    async with get_client() as api:
        await api.release_concurrency_slots_with_lease(UUID(lease))


def with_own_teacher(folder: Path, name: str, limit: str, state_id: str) -> Any:
    teacher = {"state_id": state_id, "session": "own"}
    return tiny_config("opd", folder, name=name, session_limit=limit, cycles=1, teacher=teacher)


def short(folder: Path, limit: str, **fields: Any) -> Any:
    return grpo_config(folder, **{"cycles": 1, "evaluation": {"enabled": False}, "session_limit": limit, **fields})


@pytest.fixture
def events() -> Iterator[list[Event]]:
    heard: list[Event] = []
    with listening(heard.append):
        yield heard


def warnings_in(events: list[Event]) -> list[str]:
    return [event.facts["message"] for event in events if event.kind == "warning"]


async def test_two_that_need_two_slots_of_three_take_them_at_once_and_one_waits_for_the_other(
    taught: Taught, local: GatewayProcess, tmp_path: Path, events: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    state_id, limit, counted = (await taught("local"))["state_id"], await new_limit(3), []
    real = create_session

    def waits() -> bool:
        return any(f"waiting for 2 of the 3 slots of {limit}: 2 are taken" in one for one in warnings_in(events))

    async def counting(*args: Any) -> Any:
        counted.append(await taken(limit))
        while not waits():  # the first goes on once the second has come so far
            await asyncio.sleep(0.05)
        return await real(*args)

    monkeypatch.setattr("flows.durable.session_scope.create_session", counting)
    events.clear()
    configs = [with_own_teacher(tmp_path, name, limit, state_id) for name in ("one", "two")]
    await asyncio.wait_for(asyncio.gather(*(flows.opd(config) for config in configs)), 60)
    assert counted == [2, 2, 2, 2], "all of a run's before its first session, for both of its sessions"
    assert await taken(limit) == 0
    sessions = [event.kind for event in events if event.kind in ("session_created", "session_closed")]
    assert sessions == (["session_created"] * 2 + ["session_closed"] * 2) * 2, "never four at once"


async def test_a_limit_that_is_missing_or_too_small_is_refused_before_anything_is_allocated(
    taught: Taught, local: GatewayProcess, tmp_path: Path, events: list[Event]
) -> None:
    state_id, limit = (await taught("local"))["state_id"], await new_limit(1)
    with pytest.raises(ConfigError, match=r"session_limit = 'nobody': .* `prefect gcl create nobody --limit N`"):
        await flows.grpo(short(tmp_path, "nobody"))
    events.clear()
    with pytest.raises(ConfigError, match=f"'{limit}' allows 1 open sessions, and this run needs 2 at once"):
        await flows.opd(with_own_teacher(tmp_path, "two", limit, state_id))
    assert events == []
    assert list(tmp_path.iterdir()) == [], "not even a run folder"


async def test_who_is_stopped_while_waiting_leaves_nothing_and_a_retry_that_adopts_everything_takes_none(
    local: GatewayProcess, tmp_path: Path, events: list[Event]
) -> None:
    limit = await new_limit(1)
    finished, state = await first_attempt(flows.grpo, short(tmp_path, limit))
    assert state.is_completed()
    lease = await take(limit)
    assert (await retry(flows.grpo, finished)).is_completed(), "though there is no slot"
    assert len(await sessions_of(finished)) == 1

    events.clear()
    waiting = asyncio.create_task(flows.grpo(short(tmp_path, limit, name="waiting")))

    async def is_told() -> bool | None:
        return True if warnings_in(events) else None

    await until(is_told, "the run to wait")
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert "session_requested" not in [event.kind for event in events]
    assert await taken(limit) == 1, "the test's own"
    await give_back(lease)
    assert await taken(limit) == 0


async def test_who_is_stopped_in_the_very_moment_the_slots_are_granted_gives_them_back(
    prefect_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = await new_limit(1)
    mine = slots.Slots(limit, 1, flow_run_id=str(uuid4()))
    real = PrefectClient.increment_concurrency_slots_with_lease

    async def slow(self: Any, *args: Any, **options: Any) -> Any:
        answer = await real(self, *args, **options)
        taking.cancel()  # granted, and not known here yet
        await asyncio.sleep(0.05)
        return answer

    monkeypatch.setattr(PrefectClient, "increment_concurrency_slots_with_lease", slow)
    taking = asyncio.create_task(mine.take())
    with pytest.raises(asyncio.CancelledError):
        await taking
    assert mine.lease is None
    assert await taken(limit) == 0


async def test_a_lease_that_is_lost_is_a_warning_and_no_reason_to_end_what_is_paid_for(
    local: GatewayProcess, tmp_path: Path, events: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    limit, leases = await new_limit(1), []
    monkeypatch.setattr(slots, "RENEW_EVERY_S", 0.05)
    real = create_session

    async def losing(client: WhitneyClient, create_key: str, labels: dict[str, str]) -> Any:
        leases.append(labels[SLOTS])
        await give_back(labels[SLOTS])
        return await real(client, create_key, labels)

    monkeypatch.setattr("flows.durable.session_scope.create_session", losing)
    summary = await flows.grpo(short(tmp_path, limit, cycles=3))
    assert summary["cycles"] == 3
    assert len(leases) == 1
    assert (
        len(
            [
                one
                for one in warnings_in(events)
                if f"this run's slots of {limit} are lost, and it goes on without" in one
            ]
        )
        == 1
    )


async def test_the_reaper_gives_back_the_slots_of_what_it_closes_and_of_nothing_else(local: GatewayProcess) -> None:
    limit = await new_limit(3)
    dead, shared = await take(limit), await take(limit, 2)
    async with get_client() as api:
        ended = (await api.create_flow_run(reap, state=Completed())).id
        alive = (await api.create_flow_run(reap)).id
    async with WhitneyClient(WhitneySettings()) as client:
        for key, owner, lease in (("a", ended, dead), ("b", ended, shared), ("c", alive, shared)):
            labels = {FLOW_RUN: str(owner), SLOTS: lease}
            await client.create_session(create_key=f"{limit}-{key}", labels=labels)
        assert len((await reap())["closed"]) == 2
        assert await taken(limit) == 2, "one session of two is open yet, of those that share a lease"
        async with get_client() as api:
            await api.set_flow_run_state(alive, Completed(), force=True)
        assert len((await reap())["closed"]) == 1
    assert await taken(limit) == 0


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyGateway]:
    with ExitStack() as stack:
        yield FaultyGateway(tmp_path_factory.mktemp("slots"), stack)


@pytest.fixture(scope="module")
def served(prefect_server: str, gateway: FaultyGateway, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    with serving("grpo", api_url=prefect_server, folder=folder, environment=gateway.environment) as started:
        yield started


async def test_the_slot_of_a_killed_process_comes_back_with_the_runners_hook_and_the_next_in_line_trains(
    served: Served, gateway: FaultyGateway, tmp_path: Path
) -> None:
    limit = await new_limit(1)
    endless = await served.press_run("grpo", short(tmp_path, limit, cycles=500, name="killed"))

    async def training() -> bool | None:
        return True if (tmp_path / "killed" / "metrics.jsonl").exists() else None

    await until(training, "a cycle to be trained", served.log)
    assert await taken(limit) == 1
    kill_flow_runs_of(served)
    killed_at = time.monotonic()
    next_one = await served.press_run("grpo", short(tmp_path, limit, name="next"))
    assert state_of(await served.ended(endless)) == StateType.CRASHED
    (session,) = await gateway.all_closed(endless)
    assert session.labels[SLOTS]
    assert state_of(await served.ended(next_one)) == StateType.COMPLETED
    assert time.monotonic() - killed_at < slots.LEASE_S / 2, "the hook's doing, not the lease's end"
    await until(lambda: all_back(limit), "the slots of the second run")


async def lease_ends_after_s(limit: str) -> float:
    """Take a slot, renew nothing, and wait until the server takes it back."""
    mine = slots.Slots(limit, 1, flow_run_id=str(uuid4()))
    with disable_run_logger():  # there is no flow run here
        await mine.take()
    began = time.monotonic()
    await mine.stop_renewing()
    await until(lambda: all_back(limit), "the lease to end")
    return time.monotonic() - began


@pytest.mark.slow
def test_a_prefect_server_that_was_killed_and_started_again_knows_whose_slots_are_taken_and_ends_old_leases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment, log = project_server_environment(tmp_path / "prefect", free_port()), tmp_path / "prefect.log"
    monkeypatch.setattr(slots, "LEASE_S", SHORTEST_LEASE_S)
    with temporary_settings({PREFECT_API_URL: environment["PREFECT_API_URL"]}):
        with prefect_server(environment, log) as process:
            wait_until_up(process, environment, log)
            limit = asyncio.run(new_limit(1))
            lease = asyncio.run(take(limit))
            process.kill()
            process.wait()
        with prefect_server(environment, log) as process:
            wait_until_up(process, environment, log)
            assert asyncio.run(taken(limit)) == 1
            asyncio.run(give_back(lease))
            assert asyncio.run(taken(limit)) == 0
            seconds = asyncio.run(lease_ends_after_s(limit))
    assert SHORTEST_LEASE_S - 1 <= seconds <= SHORTEST_LEASE_S + 2 * SERVER_LOOKS_EVERY_S
