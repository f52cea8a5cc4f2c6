"""Order, batches, fairness, failures: what the scheduler and the executor do with accepted operations."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from random import Random
from typing import Any

import pytest

from gateway.providers.base import ProviderLostError
from gateway.queues import QueuedOperation, RunQueue
from gateway.scheduler import Gathering, Scheduler


def _shape(batches: list[list[Any]]) -> list[tuple[str, int]]:
    return [(batch[0].kind, len(batch)) for batch in batches]


async def test_a_cycle_posted_in_reverse_is_executed_in_order(caller: Any, payloads: Any) -> None:
    run_id = await caller.open_run()
    steps = [("forward_backward", payloads.training()), ("optim_step", payloads.optim_step), ("save_state", {})]
    for seq_id, (kind, payload) in reversed(list(enumerate(steps))):
        assert (await caller.post(run_id, seq_id, kind, payload)).status_code == 202
    await caller.wait(run_id, 2)
    assert [batch[0].kind for batch in caller.provider.batches] == [kind for kind, _ in steps]


async def test_samples_that_arrive_one_after_another_execute_together(caller: Any, payloads: Any) -> None:
    run_id = await caller.open_run()
    sampler = await caller.open_sampler(run_id)
    for seq_id in range(1, 9):
        await caller.post(run_id, seq_id, "sample", payloads.sample(seed=seq_id), sampler)
    operations = [await caller.wait(run_id, seq_id) for seq_id in range(1, 9)]
    assert _shape(caller.provider.batches[1:]) == [("sample", 8)]
    seeds = [work.payload["sampling_params"]["seed"] for work in caller.provider.batches[1]]
    assert seeds == list(range(1, 9))
    assert len({str(operation["result"]) for operation in operations}) == 8


async def test_only_neighbours_of_one_kind_on_one_snapshot_execute_together(caller: Any, payloads: Any) -> None:
    run_id = await caller.open_run()
    old = await caller.open_sampler(run_id)
    new = (await caller.do(run_id, 1, "save_weights_for_sampler", {}))["sampler_id"]
    scoring = {"input": {"token_ids": [5, 6]}}
    posts = [("sample", old), ("sample", old), ("sample", new), ("logprobs", new), ("logprobs", new), ("sample", new)]
    for seq_id, (kind, sampler) in enumerate(posts, start=2):
        await caller.post(run_id, seq_id, kind, payloads.sample() if kind == "sample" else scoring, sampler)
    await caller.wait(run_id, 7)
    expected = [("sample", 2), ("sample", 1), ("logprobs", 2), ("sample", 1)]
    assert _shape(caller.provider.batches[2:]) == expected


async def test_a_batch_is_bounded_in_sequences(start: Any, payloads: Any) -> None:
    async with start(gathering=Gathering(quiet_s=0.02, cap_s=0.2, most_sequences=8)) as caller:
        run_id = await caller.open_run()
        sampler = await caller.open_sampler(run_id)
        for seq_id, count in enumerate([4, 4, 3, 20, 1], start=1):
            await caller.post(run_id, seq_id, "sample", payloads.sample(count), sampler)
        await caller.wait(run_id, 5)
        assert _shape(caller.provider.batches[1:]) == [("sample", 2), ("sample", 1), ("sample", 1), ("sample", 1)]


async def test_a_provider_that_does_not_batch_gets_one_operation_at_a_time(
    start: Any, payloads: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.providers.delay.DelayProvider.batches_samplers", False)
    async with start() as caller:
        run_id = await caller.open_run()
        sampler = await caller.open_sampler(run_id)
        for seq_id in (1, 2, 3):
            await caller.post(run_id, seq_id, "sample", payloads.sample(), sampler)
        await caller.wait(run_id, 3)
        assert _shape(caller.provider.batches[1:]) == [("sample", 1)] * 3


def _queue(ordinal: int, *kinds: str, arrived_at: float = 0.0) -> RunQueue:
    queue = RunQueue(f"run_{ordinal}", ordinal)
    for seq_id, kind in enumerate(kinds):
        queue.accept(QueuedOperation(seq_id, kind, "smp", 1, arrived_at))
    return queue


def test_runs_take_turns() -> None:
    scheduler = Scheduler(Gathering())
    for ordinal in range(3):
        scheduler.add(_queue(ordinal, "forward", "optim_step"))
    turns = [scheduler.next_turn(0.0)[0] for _ in range(6)]
    assert [turn.queue.ordinal for turn in turns if turn] == [0, 1, 2, 0, 1, 2]
    assert scheduler.next_turn(0.0) == (None, None)


def test_a_gathering_batch_lets_other_runs_go_first_and_closes_when_it_is_quiet() -> None:
    scheduler = Scheduler(Gathering(quiet_s=0.04, cap_s=0.3))
    sampling = _queue(0, "sample", arrived_at=10.0)
    scheduler.add(sampling)
    scheduler.add(_queue(1, "forward"))
    turn, _ = scheduler.next_turn(10.01)
    assert turn is not None
    assert turn.queue.ordinal == 1
    assert scheduler.next_turn(10.02) == (None, pytest.approx(10.04))
    sampling.accept(QueuedOperation(1, "sample", "smp", 1, 10.03))
    assert scheduler.next_turn(10.05) == (None, pytest.approx(10.07))
    turn, _ = scheduler.next_turn(10.07)
    assert turn is not None
    assert len(turn.batch) == 2


def test_arrivals_without_end_cannot_hold_a_batch_open_beyond_the_cap() -> None:
    scheduler = Scheduler(Gathering(quiet_s=0.04, cap_s=0.3))
    queue = _queue(0)
    scheduler.add(queue)
    for step in range(31):
        queue.accept(QueuedOperation(step, "sample", "smp", 1, step / 100))
    assert scheduler.next_turn(0.299)[0] is None
    assert scheduler.next_turn(0.3)[0] is not None


def test_a_batch_that_nothing_can_join_does_not_wait() -> None:
    scheduler = Scheduler(Gathering())
    scheduler.add(_queue(0, "sample", "sample", "forward"))
    turn, _ = scheduler.next_turn(0.0)
    assert turn is not None
    assert len(turn.batch) == 2


async def test_a_long_stream_of_one_run_does_not_starve_another(caller: Any, payloads: Any) -> None:
    greedy, modest = await caller.open_run(), await caller.open_run()
    caller.provider.gate.clear()
    for seq_id in range(20):
        await caller.post(greedy, seq_id, "forward_backward", payloads.training())
    await caller.post(modest, 0, "save_state", {})
    caller.provider.gate.set()
    await caller.wait(greedy, 19)
    kinds = [batch[0].kind for batch in caller.provider.batches]
    assert kinds.index("save_state") <= 2


async def test_a_failed_operation_fails_the_run_and_cancels_what_is_behind(caller: Any, payloads: Any) -> None:
    run_id = await caller.open_run()
    caller.provider.breaks["optim_step"] = "no_gradient"
    for seq_id, kind in enumerate(["optim_step", "save_state", "save_state"]):
        payload = payloads.optim_step if kind == "optim_step" else {}
        caller.provider.gate.clear()
        await caller.post(run_id, seq_id, kind, payload)
    caller.provider.gate.set()
    failed = await caller.wait(run_id, 0)
    assert (failed["status"], failed["error"]["code"]) == ("failed", "no_gradient")
    assert [(await caller.wait(run_id, seq_id))["status"] for seq_id in (1, 2)] == ["cancelled"] * 2
    run = await caller.get(f"/runs/{run_id}")
    assert run["status"] == "failed"
    assert run["reason"] == "operation_failed: seq_id 0 (optim_step): no_gradient"
    refused = (await caller.post(run_id, 3, "save_state", {})).json()["error"]
    assert (refused["code"], refused["details"]["status"]) == ("run_not_active", "failed")


async def test_behind_a_failure_within_a_batch_nothing_counts(caller: Any, payloads: Any) -> None:
    run_id = await caller.open_run()
    sampler = await caller.open_sampler(run_id)
    caller.provider.breaks["sample"] = "out_of_memory"
    for seq_id in (1, 2, 3):
        await caller.post(run_id, seq_id, "sample", payloads.sample(seed=seq_id), sampler)
    statuses = [(await caller.wait(run_id, seq_id))["status"] for seq_id in (1, 2, 3)]
    assert statuses == ["succeeded", "failed", "cancelled"]
    assert (await caller.get(f"/runs/{run_id}"))["usage"]["operations"]["sample"] == 2


async def test_an_exception_of_the_provider_is_a_failed_operation_that_quotes_nothing(
    caller: Any, caplog: pytest.LogCaptureFixture
) -> None:
    run_id, other = await caller.open_run(), await caller.open_run()
    caller.provider.breaks["save_state"] = RuntimeError("token 424242 is strange")
    await caller.post(run_id, 0, "save_state", {})
    operation = await caller.wait(run_id, 0)
    assert operation["error"]["code"] == "internal"
    assert "RuntimeError" in caplog.text
    assert "424242" not in str(operation) + caplog.text
    caller.provider.breaks.clear()
    await caller.do(other, 0, "save_state", {})


async def test_a_lost_provider_fails_every_run_and_is_started_again(caller: Any, payloads: Any) -> None:
    runs = [await caller.open_run(), await caller.open_run()]
    caller.provider.breaks["forward_backward"] = ProviderLostError()
    await caller.post(runs[0], 0, "forward_backward", payloads.training())
    operation = await caller.wait(runs[0], 0)
    assert (operation["status"], operation["error"]["code"]) == ("failed", "provider_lost")
    for run_id in runs:
        run = await caller.get(f"/runs/{run_id}")
        assert (run["status"], run["reason"]) == ("failed", "provider_lost")
    await caller.do(await caller.open_run(), 0, "save_state", {})
    assert caller.provider.starts == 2


async def test_a_loss_seen_while_allocating_does_not_restart_the_provider_twice(
    caller: Any, payloads: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id, session_id = await caller.open_run(), await caller.open_session()
    create_run = caller.provider.create_run
    allocating, go_on = asyncio.Event(), asyncio.Event()

    async def lose(spec: Any) -> None:
        allocating.set()
        await go_on.wait()
        monkeypatch.setattr(caller.provider, "create_run", create_run)
        raise ProviderLostError

    monkeypatch.setattr(caller.provider, "create_run", lose)
    creating = asyncio.create_task(caller.send("POST", f"/sessions/{session_id}/runs", caller.run_body()))
    await allocating.wait()
    await caller.post(run_id, 0, "forward_backward", payloads.training())
    await asyncio.sleep(0.02)
    go_on.set()
    answer = await creating
    assert (answer.status_code, answer.json()["error"]["retryable"]) == (503, True)
    fresh = await caller.open_run(session_id)
    assert (await caller.wait(run_id, 0))["error"]["code"] == "provider_lost"
    await caller.do(fresh, 0, "save_state", {})
    assert caller.provider.starts == 2


async def test_a_provider_that_wrote_no_file_fails_the_operation_and_nothing_else(
    caller: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id, other = await caller.open_run(), await caller.open_run()
    with monkeypatch.context() as patch:
        patch.setattr("gateway.providers.delay.write_durably", lambda target, write: None)
        await caller.post(run_id, 0, "save_state", {})
        operation = await caller.wait(run_id, 0)
    assert (operation["status"], operation["error"]["code"]) == ("failed", "internal")
    await caller.do(other, 0, "save_state", {})


async def test_a_ledger_that_cannot_be_written_gives_up_the_run_and_serves_the_others(
    caller: Any, payloads: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id, other = await caller.open_run(), await caller.open_run()

    def disk_full(*_: Any) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr("gateway.ledger.operations.Operations.end", disk_full)
        await caller.post(run_id, 0, "forward_backward", payloads.training())
        async with asyncio.timeout(10):
            while (await caller.get(f"/runs/{run_id}"))["status"] == "active":
                await asyncio.sleep(0.01)
    run = await caller.get(f"/runs/{run_id}")
    assert (run["status"], run["reason"]) == ("failed", "ledger_failed")
    await caller.do(other, 0, "save_state", {})


async def test_cancelling_lets_a_running_operation_end_and_bills_it(caller: Any, payloads: Any) -> None:
    run_id = await caller.open_run()
    caller.provider.gate.clear()
    await caller.post(run_id, 0, "forward_backward", payloads.training())
    await caller.post(run_id, 1, "optim_step", payloads.optim_step)
    await caller.until_executing()
    cancelled = (await caller.send("POST", f"/runs/{run_id}/cancel")).json()
    assert cancelled["status"] == "cancelling"
    assert (await caller.wait(run_id, 1))["status"] == "cancelled"
    assert (await caller.get(f"/runs/{run_id}"))["status"] == "cancelling"
    caller.provider.gate.set()
    assert (await caller.wait(run_id, 0))["status"] == "succeeded"
    run = await caller.get(f"/runs/{run_id}")
    assert (run["status"], run["usage"]["operations"]) == ("cancelled", {"forward_backward": 1})


async def test_a_run_is_finishing_while_its_queue_drains(caller: Any, payloads: Any) -> None:
    run_id = await caller.open_run()
    caller.provider.gate.clear()
    await caller.post(run_id, 0, "forward_backward", payloads.training())
    await caller.post(run_id, 1, "save_state", {})
    assert (await caller.send("POST", f"/runs/{run_id}/finish")).json()["status"] == "finishing"
    session = await caller.get("/sessions")
    closing = await caller.send("POST", f"/sessions/{session['sessions'][0]['session_id']}/close")
    assert closing.json()["error"]["code"] == "run_not_terminal"
    caller.provider.gate.set()
    assert (await caller.wait(run_id, 1))["status"] == "succeeded"
    assert (await caller.get(f"/runs/{run_id}"))["status"] == "finished"


async def test_weights_are_released_when_a_run_ends(caller: Any) -> None:
    run_id = await caller.open_run()
    await caller.send("POST", f"/runs/{run_id}/cancel")
    other = await caller.open_run()
    await caller.do(other, 0, "save_state", {})
    assert caller.provider.released == [run_id]


async def test_a_repeated_create_waits_for_the_allocation_under_way(caller: Any) -> None:
    session_id = await caller.open_session()
    body = caller.run_body()
    caller.provider.gate.clear()
    posts = [asyncio.create_task(caller.send("POST", f"/sessions/{session_id}/runs", body)) for _ in range(3)]
    await asyncio.sleep(0.02)
    caller.provider.gate.set()
    runs = {(await post).json()["run_id"] for post in posts}
    assert len(runs) == 1
    assert [spec.run_id for spec in caller.provider.created] == list(runs)


async def test_long_polls_are_answered_when_the_gateway_stops(caller: Any) -> None:
    run_id = await caller.open_run()
    await caller.post(run_id, 1, "save_state", {})
    poll = asyncio.create_task(caller.get(f"/runs/{run_id}/operations/1", wait_s=60))
    await asyncio.sleep(0.02)
    caller.gateway.stop_waiting()
    assert (await poll)["status"] == "queued"


@pytest.mark.parametrize("seed", range(5))
async def test_whatever_the_arrival_order_each_operation_executes_once_and_in_order(
    caller: Any, payloads: Any, seed: int
) -> None:
    random = Random(seed)
    runs = [await caller.open_run() for _ in range(3)]
    samplers = {run_id: await caller.open_sampler(run_id) for run_id in runs}
    kinds = {run_id: random.choices(["sample", "forward_backward", "optim_step"], k=20) for run_id in runs}
    contents = {"forward_backward": payloads.training(), "optim_step": payloads.optim_step}

    async def post(run_id: str, index: int) -> None:
        kind = kinds[run_id][index]
        sampler = samplers[run_id] if kind == "sample" else None
        payload = payloads.sample(seed=index) if sampler else contents[kind]
        assert (await caller.post(run_id, index + 1, kind, payload, sampler)).status_code == 202

    posts = [(run_id, index) for run_id in runs for index in range(20)] * 2
    random.shuffle(posts)
    await asyncio.gather(*(post(*which) for which in posts))
    for run_id in runs:
        assert (await caller.wait(run_id, 20))["status"] == "succeeded"
        done = [work.kind for batch in caller.provider.batches for work in batch if work.run_id == run_id]
        assert done == ["save_weights_for_sampler", *kinds[run_id]]
        bill = (await caller.get(f"/runs/{run_id}"))["usage"]["operations"]
        assert bill == Counter(done)
