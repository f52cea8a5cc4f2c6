from __future__ import annotations

import asyncio
import gc
from typing import Any

import httpx
import numpy as np
import pytest
from scripted_endpoint import RUN, FakeTime, ScriptedEndpoint, error_body

from whitney.client import WhitneyClient
from whitney.errors import (
    ConflictError,
    ConnectionFailedError,
    InvalidRequestError,
    OperationCancelledError,
    OperationFailedError,
    OperationNotSentError,
    UnavailableError,
    WhitneyError,
)
from whitney.sequence import OperationHandle
from whitney.types import CreateRun


def submit(client: WhitneyClient, n: int, kind: str = "forward_backward", **more: Any) -> OperationHandle:
    return client.submit_run_operation(RUN, kind, {"n": n, **more})


def posters() -> list[asyncio.Task[Any]]:
    return [task for task in asyncio.all_tasks() if task.get_name() == f"whitney-post-{RUN}"]


async def test_posts_leave_in_the_order_of_the_calls_one_at_a_time() -> None:
    endpoint = ScriptedEndpoint()
    async with endpoint.client() as client:
        handles = [submit(client, n) for n in range(20)]
        results = await asyncio.gather(*reversed(handles))
    assert endpoint.numbers == list(range(20))
    assert [result["echo"]["n"] for result in results] == list(reversed(range(20)))
    assert endpoint.most_posts_at_once == 1


async def test_run_and_sampler_operations_share_one_order() -> None:
    endpoint = ScriptedEndpoint()
    async with endpoint.client() as client:
        first = client.submit_run_operation(RUN, "save_weights_for_sampler", {})
        second = client.submit_sampler_operation(RUN, "smp_1", "sample", {"n": 1})
        third = client.submit_run_operation(RUN, "optim_step", {})
        await asyncio.gather(first, second, third)
    assert endpoint.kinds == ["save_weights_for_sampler", "sample", "optim_step"]
    assert [first.seq_id, second.seq_id, third.seq_id] == [0, 1, 2]


@pytest.mark.parametrize("fault", ["lost", "reset", "garbled", (503, {}), (429, {"retry-after": "3"}), (408, {})])
async def test_after_a_fault_the_identical_bytes_are_posted_again_and_executed_once(fault: Any) -> None:
    endpoint = ScriptedEndpoint([fault, fault, "ok"])
    async with endpoint.client() as client:
        first, second = submit(client, 0), submit(client, 1)
        await asyncio.gather(first, second)
    assert endpoint.posts[0] == endpoint.posts[1] == endpoint.posts[2]
    assert len(endpoint.posts) == 4
    assert endpoint.numbers == [0, 1]


async def test_a_retry_after_is_waited_for() -> None:
    time = FakeTime()
    async with ScriptedEndpoint([(429, {"retry-after": "5"})]).client(time) as client:
        await submit(client, 0)
    assert time.slept == [5.25]


async def test_what_was_submitted_behind_a_refused_operation_is_not_sent_and_what_comes_later_is() -> None:
    endpoint = ScriptedEndpoint()
    async with endpoint.client() as client:
        good = submit(client, 0)
        refused = submit(client, 1, refuse=True)
        behind = [submit(client, 2, "optim_step"), submit(client, 3, "save_state")]
        await good
        with pytest.raises(InvalidRequestError, match=r"run_id=run_1 seq_id=1 forward_backward: 422"):
            await refused
        for handle in behind:
            with pytest.raises(OperationNotSentError, match="the forward_backward submitted before it") as caught:
                await handle
            assert (caught.value.run_id, caught.value.kind, caught.value.code) == (RUN, handle.kind, "not_sent")
            assert handle.seq_id is None
        later = submit(client, 4)
        await later
    assert endpoint.numbers == [0, 4]
    assert later.seq_id == 1, "a refused operation takes no seq_id"


async def test_a_seq_conflict_is_never_repeated_and_the_run_is_asked_where_it_stands() -> None:
    endpoint = ScriptedEndpoint()
    async with endpoint.client() as client:
        await submit(client, 0)
        endpoint.ledger.append({"seq_id": 1, "kind": "forward", "payload": {"n": 99}})  # another client's
        with pytest.raises(ConflictError) as caught:
            await submit(client, 1)
        assert caught.value.code == "seq_conflict"
        assert len(endpoint.posts) == 2
        await submit(client, 2)
    assert endpoint.numbers == [0, 99, 2]


async def test_a_seq_gap_is_repeated() -> None:
    endpoint = ScriptedEndpoint()
    answers = iter([409, None])
    accept = endpoint._accept
    endpoint._accept = lambda body: (  # type: ignore[method-assign] # one answer of a gateway that is still catching up
        httpx_response(409, "seq_gap") if next(answers) else accept(body)
    )
    async with endpoint.client() as client:
        await submit(client, 0)
    assert endpoint.numbers == [0]
    assert len(endpoint.posts) == 2


async def test_behind_an_operation_whose_answers_were_all_lost_nothing_is_sent_any_more() -> None:
    endpoint = ScriptedEndpoint(["ok", *["lost"] * 1000])
    async with endpoint.client(retry_deadline_s=30) as client:
        await submit(client, 0)
        doubtful, behind = submit(client, 1), submit(client, 2)
        with pytest.raises(ConnectionFailedError, match="seq_id=1"):
            await doubtful
        with pytest.raises(OperationNotSentError):
            await behind
        endpoint.faults.clear()
        # The forward_backward stands. Submitted again, as a loop that caught the error might, it would count twice.
        with pytest.raises(
            OperationNotSentError, match="nobody can tell whether the endpoint has the forward_backward"
        ):
            await submit(client, 1)
    assert endpoint.numbers == [0, 1]


async def test_an_endpoint_that_refuses_until_the_deadline_has_nothing_behind_it_sent() -> None:
    endpoint = ScriptedEndpoint([(503, {})] * 1000)
    async with endpoint.client() as client:
        first, behind = submit(client, 0), submit(client, 1)
        with pytest.raises(UnavailableError, match="503"):
            await first
        with pytest.raises(OperationNotSentError):
            await behind
    assert endpoint.ledger == []
    assert len(set(endpoint.posts)) == 1


async def test_giving_up_waiting_changes_nothing_on_the_wire() -> None:
    endpoint = ScriptedEndpoint()
    endpoint.gate.clear()
    async with endpoint.client() as client:
        first, second = submit(client, 0), submit(client, 1)
        waiting = asyncio.ensure_future(first.result())
        while not endpoint.posts:
            await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        endpoint.gate.set()
        assert (await second)["echo"] == {"n": 1}
        assert (await first)["echo"] == {"n": 0}, "and the same handle can be awaited again"
    assert endpoint.numbers == [0, 1]


async def test_a_handle_can_be_awaited_by_several_and_again() -> None:
    endpoint = ScriptedEndpoint()
    async with endpoint.client() as client:
        handle = submit(client, 7)
        assert list(await asyncio.gather(handle.result(), handle.result())) == [await handle] * 2


@pytest.mark.parametrize("started", [True, False], ids=["while posting", "before the first post"])
async def test_closing_the_client_leaves_nobody_waiting(started: bool) -> None:
    endpoint = ScriptedEndpoint()
    endpoint.gate.clear()
    client = endpoint.client()
    waiting = [asyncio.ensure_future(submit(client, n).result()) for n in range(3)]
    while started and not endpoint.posts:
        await asyncio.sleep(0)
    await client.aclose()
    outcomes = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 5)
    assert [type(outcome) for outcome in outcomes] == [ConnectionFailedError, *[OperationNotSentError] * 2]
    assert ("next_seq_id" if started else "the client is closed") in str(outcomes[0])
    assert len(endpoint.posts) == started


async def test_a_closed_client_sends_nothing_and_says_so() -> None:
    endpoint = ScriptedEndpoint()
    client = endpoint.client()
    await client.aclose()
    await client.aclose()
    with pytest.raises(ConnectionFailedError, match="closed"):
        await client.get_run(RUN)
    with pytest.raises(WhitneyError, match="closed"):
        await client.run_operation(RUN, "forward", {"n": 0})
    assert endpoint.posts == []


@pytest.mark.parametrize("accepted", [True, False], ids=["accepted", "not accepted"])
async def test_a_poster_killed_midway_tells_its_handles_and_nothing_follows_what_nobody_knows(
    accepted: bool,
) -> None:
    endpoint = ScriptedEndpoint()
    async with endpoint.client() as client:
        await submit(client, 0)
        endpoint.gate.clear()
        doubtful, behind = submit(client, 1), submit(client, 2)
        while len(endpoint.posts) < 2:
            await asyncio.sleep(0)
        if accepted:
            endpoint.ledger.append({"seq_id": 1, "kind": "forward_backward", "payload": {"n": 1}})
        (poster,) = posters()
        poster.cancel()
        with pytest.raises(ConnectionFailedError, match="stopped before the endpoint had answered"):
            await doubtful
        with pytest.raises(OperationNotSentError):
            await behind
        endpoint.gate.set()
        with pytest.raises(OperationNotSentError, match="nobody can tell"):
            await submit(client, 3)
    assert endpoint.numbers == ([0, 1] if accepted else [0])


async def test_a_submit_in_the_very_moment_a_poster_dies_is_told_too() -> None:
    endpoint = ScriptedEndpoint()
    endpoint.gate.clear()
    async with endpoint.client() as client:
        first = submit(client, 0)
        while not endpoint.posts:
            await asyncio.sleep(0)
        (poster,) = posters()
        poster.cancel()
        while not poster.done():
            await asyncio.sleep(0)
        second = submit(client, 1)
        endpoint.gate.set()
        outcomes = await asyncio.wait_for(asyncio.gather(first, second, return_exceptions=True), 5)
    assert isinstance(outcomes[0], ConnectionFailedError)
    assert isinstance(outcomes[1], OperationNotSentError)
    assert endpoint.numbers == []


async def test_what_the_caller_does_to_a_payload_after_submitting_it_changes_nothing() -> None:
    endpoint = ScriptedEndpoint()
    async with endpoint.client() as client:
        payload = {"n": 1, "values": [1.0, 2.0]}
        handle = client.submit_run_operation(RUN, "forward", payload)
        payload["n"], payload["values"] = 2, []
        await handle
    assert endpoint.ledger[0]["payload"] == {"n": 1, "values": [1.0, 2.0]}


async def test_a_payload_without_json_form_is_refused_where_it_is_submitted_and_names_no_value() -> None:
    endpoint = ScriptedEndpoint()
    async with endpoint.client() as client:
        first = submit(client, 0)
        with pytest.raises(TypeError, match=r"run run_1, forward: .*set") as caught:
            submit(client, 1, "forward", tokens={31415})
        assert "31415" not in str(caught.value)
        await asyncio.gather(first, submit(client, 2))
    assert endpoint.numbers == [0, 2]


async def test_arrays_travel_as_lists_whatever_their_layout() -> None:
    endpoint = ScriptedEndpoint()
    async with endpoint.client() as client:
        grid = np.arange(6, dtype=np.int64).reshape(2, 3)
        await submit(client, 0, a=grid, strided=grid[:, ::2], half=np.float16(0.5), row=grid[0])
    assert endpoint.ledger[0]["payload"] == {
        "n": 0,
        "a": [[0, 1, 2], [3, 4, 5]],
        "strided": [[0, 2], [3, 5]],
        "half": 0.5,
        "row": [0, 1, 2],
    }


async def test_a_failed_operation_says_which_it_was_and_why() -> None:
    endpoint = ScriptedEndpoint()
    endpoint.outcomes[0] = {"status": "failed", "error": {"code": "out_of_memory", "message": "batch too large"}}
    endpoint.outcomes[1] = {"status": "cancelled", "error": None}
    async with endpoint.client() as client:
        failed, cancelled = submit(client, 0), submit(client, 1, "optim_step")
        with pytest.raises(OperationFailedError, match="run run_1, seq_id 0, forward_backward failed: out_of_memory"):
            await failed
        with pytest.raises(OperationCancelledError) as caught:
            await cancelled
    assert (caught.value.seq_id, caught.value.kind, caught.value.code) == (1, "optim_step", "cancelled")


async def test_a_failure_that_nobody_awaits_is_no_error_of_its_own() -> None:
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    async with ScriptedEndpoint().client() as client:
        submit(client, 0, refuse=True)
        await asyncio.wait(posters())
    gc.collect()
    await asyncio.sleep(0)
    assert complaints == []


async def test_creating_a_run_again_by_its_key_keeps_what_is_being_posted() -> None:
    endpoint = ScriptedEndpoint()
    handle_request = endpoint.handle

    async def with_create(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/runs"):
            record = {"run_id": RUN, "status": "active", "next_seq_id": len(endpoint.ledger)}
            return httpx.Response(200, json=record)
        return await handle_request(request)

    endpoint.handle = with_create  # type: ignore[method-assign] # one more route for this test
    request = CreateRun(create_key="k", provider="local", model="tiny")
    async with endpoint.client() as client:
        await client.create_run("ses_1", request)
        endpoint.gate.clear()
        first = submit(client, 0)
        while not endpoint.posts:
            await asyncio.sleep(0)
        await client.create_run("ses_1", request)
        second = submit(client, 1)
        endpoint.gate.set()
        await asyncio.gather(first, second)
    assert endpoint.numbers == [0, 1]
    assert endpoint.most_posts_at_once == 1
    assert endpoint.run_reads == 0, "a run that was created here is never asked for its place"


async def test_a_run_of_another_client_is_asked_for_its_place_once() -> None:
    endpoint = ScriptedEndpoint()
    endpoint.ledger += [{"seq_id": n, "kind": "forward", "payload": {"n": n}} for n in range(3)]
    async with endpoint.client() as client:
        await asyncio.gather(*(submit(client, n) for n in range(3, 6)))
    assert endpoint.numbers == [0, 1, 2, 3, 4, 5]
    assert endpoint.run_reads == 1


def httpx_response(status: int, code: str) -> httpx.Response:
    return httpx.Response(status, json=error_body(code))
