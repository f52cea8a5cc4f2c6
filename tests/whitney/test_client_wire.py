"""What the client puts on the wire and makes of answers, one request at a time."""

from __future__ import annotations

import asyncio
import logging
import re
import resource
import socket
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest
from scripted_endpoint import FakeTime, ScriptedEndpoint, body_of, settings

from whitney.client import POLL_MARGIN_S, UNHELD_POLL_PAUSE_S, WhitneyClient
from whitney.errors import (
    ApiError,
    ConfigurationError,
    ConnectionFailedError,
    EndpointLostError,
    UnavailableError,
    WaitTimeoutError,
)
from whitney.kept import forget, keep
from whitney.retry import OWN_LONGEST_S
from whitney.transport import MAX_CONNECTIONS, USER_AGENT, Endpoint

RUN = {"run_id": "run_1", "status": "active", "next_seq_id": 0}
DONE = {"run_id": "run_1", "seq_id": 0, "kind": "forward", "status": "succeeded", "result": {}}


def client_on(handler: Any, time: FakeTime | None = None, **changes: Any) -> WhitneyClient:
    transport = httpx.MockTransport(handler)
    return WhitneyClient(settings(**changes), transport=transport, retry=(time or FakeTime()).policy())


async def test_a_large_body_travels_compressed_and_a_small_one_does_not() -> None:
    requests: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(200, json={"session_id": "s", "status": "open"})

    async with client_on(handle, compress_above_bytes=1000) as client:
        for size in (10, 50_000):
            await client.create_session(create_key="k", labels={"long": "x" * size})
    assert [request.headers.get("content-encoding") for request in requests] == [None, "zstd"]
    assert [len(body_of(request)["labels"]["long"]) for request in requests] == [10, 50_000]
    assert len(requests[1].content) < 1000
    assert {request.headers["content-type"] for request in requests} == {"application/json"}
    assert {request.headers["user-agent"] for request in requests} == {USER_AGENT}


async def test_an_answer_that_is_no_json_is_asked_for_again() -> None:
    answers = iter([httpx.Response(200, text="<html>"), httpx.Response(200, text="[1]"), httpx.Response(200, json=RUN)])
    async with client_on(lambda _: next(answers)) as client:
        assert (await client.get_run("run_1")).status == "active"


async def test_an_answer_that_does_not_decompress_is_asked_for_again() -> None:
    broken = httpx.Response(200, headers={"content-encoding": "gzip"}, stream=httpx.ByteStream(b"no gzip"))
    answers = iter([broken, httpx.Response(200, json=RUN)])
    async with client_on(lambda _: next(answers)) as client:
        assert (await client.get_run("run_1")).status == "active"


async def test_an_answer_of_another_kind_is_an_error_that_names_its_fields() -> None:
    async with client_on(lambda _: httpx.Response(200, json={"status": "asleep"})) as client:
        with pytest.raises(ApiError, match=r"get_run run_id=run_1: the answer is not a Run \(run_id: .*status: "):
            await client.get_run("run_1")


@pytest.mark.parametrize(("status", "said"), [(404, "404"), (200, "something else")])
async def test_a_server_that_is_no_whitney_is_told_by_its_address(status: int, said: str) -> None:
    async with client_on(lambda _: httpx.Response(status, json={"rows": "many"})) as client:
        with pytest.raises(ConfigurationError, match=f"is no Whitney endpoint: it answers {said} to the question"):
            await client.capabilities()


async def test_a_name_of_no_host_is_not_asked_again_and_nobody_is_told_to_start_somebody_elses_server() -> None:
    time = FakeTime()
    began = time.now

    def handle(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("unknown", request=request) from socket.gaierror(socket.EAI_NONAME, "unknown")

    async with client_on(handle, time, base_url="https://whitney.invalid") as client:
        with pytest.raises(ConnectionFailedError, match="no host of this name") as caught:
            await client.capabilities()
    assert time.now == began
    assert "whitney serve" not in str(caught.value)


async def test_an_endpoint_that_never_answered_is_given_up_early_and_one_that_did_is_not() -> None:
    time, up = FakeTime(), False

    def handle(request: httpx.Request) -> httpx.Response:
        if up:
            return httpx.Response(200, json=RUN)
        raise httpx.ConnectError("refused", request=request)

    began = time.now
    async with client_on(handle, time, first_contact_s=15) as client:
        with pytest.raises(ConnectionFailedError, match=r"ConnectError.*WHITNEY_BASE_URL.*whitney serve"):
            await client.get_run("run_1")
        assert time.now - began <= 15
        up = True
        await client.get_run("run_1")
        up, began = False, time.now
        with pytest.raises(ConnectionFailedError):
            await client.get_run("run_1")
        assert 250 < time.now - began <= 300


async def test_a_busy_endpoint_is_waited_for_from_the_first_request() -> None:
    time = FakeTime()
    began = time.now
    async with client_on(lambda _: httpx.Response(503), time, first_contact_s=15) as client:
        with pytest.raises(UnavailableError):
            await client.get_run("run_1")
    assert time.now - began > 250


async def test_an_endpoint_that_keeps_refusing_is_told_of_twice_a_minute_and_a_single_refusal_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for refusals, warnings in ((3, 0), (7, 1), (9, 2)):
        caplog.clear()
        answers = iter([*[httpx.Response(503)] * refusals, httpx.Response(200, json=RUN)])
        async with client_on(lambda _, answers=answers: next(answers)) as client:
            await client.get_run("run_1")
        told = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
        assert len(told) == warnings
        assert [
            line for line in told if not re.match(r"asking again in \d+\.\d s, and until \d\d:\d\d:\d\d: ", line)
        ] == []


async def test_a_gateway_of_this_process_s_own_is_asked_often_and_once_it_is_lost_no_more() -> None:
    address, asked = settings().base_url, 0
    waits: list[float] = []

    def refuse(request: httpx.Request) -> httpx.Response:
        nonlocal asked
        asked += 1
        if asked == 9:
            keep(address).lost = "its memory ran out"
        raise httpx.ConnectError("refused", request=request)

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    keep(address)
    try:
        async with WhitneyClient(settings(), transport=httpx.MockTransport(refuse)) as client:
            object.__setattr__(client._endpoint.policy, "sleep", sleep)
            with pytest.raises(EndpointLostError, match=r"^get_run run_id=run_1: its memory ran out$"):
                await client.get_run("run_1")
    finally:
        forget(address)
    assert asked == 9
    assert max(waits) <= OWN_LONGEST_S


async def test_a_long_poll_is_read_for_longer_than_it_may_last() -> None:
    timeouts: list[dict[str, float]] = []

    def handle(request: httpx.Request) -> httpx.Response:
        timeouts.append(request.extensions["timeout"])
        assert request.url.params["wait_s"] == "60"
        return httpx.Response(200, json=DONE)

    async with client_on(handle, request_timeout_s=5) as client:
        await client.get_operation("run_1", 0, wait_s=60)
    assert timeouts[0]["read"] == 60 + POLL_MARGIN_S
    assert timeouts[0]["pool"] is None, "a poll waits for a connection as long as it takes"


async def test_an_endpoint_that_does_not_hold_polls_is_not_asked_in_a_hot_loop() -> None:
    time = FakeTime()
    statuses = iter(["queued", "running", "succeeded"])
    async with client_on(lambda _: httpx.Response(200, json={**DONE, "status": next(statuses)}), time) as client:
        assert (await client.await_operation("run_1", 0)).status == "succeeded"
    assert time.slept == [UNHELD_POLL_PAUSE_S] * 2


async def test_polls_leave_connections_free_for_posts() -> None:
    polling = most = 0
    release = asyncio.Event()

    async def handle(request: httpx.Request) -> httpx.Response:
        nonlocal polling, most
        if "operations" not in request.url.path:
            release.set()
            return httpx.Response(200, json={})
        polling += 1
        most = max(most, polling)
        await release.wait()
        polling -= 1
        return httpx.Response(200, json=DONE)

    async with client_on(handle) as client:
        polls = asyncio.gather(*(client.await_operation("run_1", 0) for _ in range(MAX_CONNECTIONS + 50)))
        while most < 256:
            await asyncio.sleep(0)
        await client.heartbeat("ses_1")
        await polls
    assert 256 <= most < MAX_CONNECTIONS


def test_a_gateway_on_this_machine_is_never_asked_through_a_proxy() -> None:
    assert Endpoint(settings(base_url="http://localhost:1")).http_options()["trust_env"] is False
    assert Endpoint(settings(base_url="https://whitney.example")).http_options()["trust_env"] is True


async def test_waiting_for_a_run_ends_in_time_also_when_the_endpoint_is_silent() -> None:
    async def silent(request: httpx.Request) -> httpx.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async with client_on(silent) as client:
        with pytest.raises(WaitTimeoutError, match="may still be billing"):
            await client.wait_terminal("run_1", timeout_s=0.01)
    async with client_on(lambda _: httpx.Response(200, json=RUN)) as client:
        with pytest.raises(WaitTimeoutError, match="it is active"):
            await client.wait_terminal("run_1", timeout_s=0.01)


async def test_a_cancelled_wait_stays_cancelled() -> None:
    async with client_on(lambda _: httpx.Response(200, json=RUN)) as client:
        waiting = asyncio.ensure_future(client.wait_terminal("run_1", timeout_s=60))
        await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting


async def broken_after(content: bytes) -> AsyncIterator[bytes]:
    yield content
    raise httpx.RemoteProtocolError("peer closed connection without sending complete message body")


async def test_a_download_that_breaks_begins_again_and_the_file_is_whole(tmp_path: Path) -> None:
    answers = iter(
        [httpx.Response(200, content=broken_after(b"half")), httpx.Response(503), httpx.Response(200, content=b"whole")]
    )
    target = tmp_path / "new" / "adapter.tar.gz"
    async with client_on(lambda _: next(answers)) as client:
        await client.download_artifact("art_1", target)
    assert target.read_bytes() == b"whole"
    assert list(target.parent.iterdir()) == [target]


async def test_a_download_that_breaks_late_begins_again_also_as_a_clients_first_request(tmp_path: Path) -> None:
    time = FakeTime()

    async def breaks_late() -> AsyncIterator[bytes]:
        yield b"half"
        time.now += 60
        raise httpx.ReadError("broken")

    answers = iter([httpx.Response(200, content=breaks_late()), httpx.Response(200, content=b"whole")])
    async with client_on(lambda _: next(answers), time, first_contact_s=15) as client:
        await client.download_artifact("art_1", tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == b"whole"


async def test_a_download_that_the_disk_has_no_room_for_names_the_file(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    async with client_on(lambda _: httpx.Response(200, content=b"whole")) as client:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
        try:
            with pytest.raises(OSError, match=rf"File too large: '{tmp_path}/.*adapter\.tar\.gz"):
                await client.download_artifact("art_1", tmp_path / "adapter.tar.gz")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []


async def test_a_download_that_is_not_what_the_endpoint_has_on_record_is_refused_at_once(tmp_path: Path) -> None:
    target = tmp_path / "adapter.tar.gz"
    answers = iter(
        httpx.Response(200, content=content, headers={"x-content-sha256": sha256(b"whole").hexdigest()})
        for content in (b"wh0le", b"whole")
    )
    async with client_on(lambda _: next(answers)) as client:
        with pytest.raises(ApiError, match=r"SHA-256 of what came is .*Export again") as refused:
            await client.download_artifact("art_1", target)
        assert refused.value.code == "artifact_corrupt"
        assert list(tmp_path.iterdir()) == []
        await client.download_artifact("art_1", target)
    assert target.read_bytes() == b"whole"


@pytest.mark.parametrize("end", ["final error", "cancelled"])
async def test_a_download_that_does_not_end_leaves_what_was_there(tmp_path: Path, end: str) -> None:
    target = tmp_path / "adapter.tar.gz"
    target.write_bytes(b"former")
    half = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        yield b"half"
        half.set()
        await asyncio.Event().wait()

    answer = httpx.Response(404) if end == "final error" else httpx.Response(200, content=endless())
    async with client_on(lambda _: answer) as client:
        download = asyncio.ensure_future(client.download_artifact("art_1", target))
        if end == "cancelled":
            await half.wait()
            download.cancel()
        with pytest.raises((ApiError, asyncio.CancelledError)):
            await download
    assert target.read_bytes() == b"former"
    assert list(tmp_path.iterdir()) == [target]


async def test_downloads_to_one_place_do_not_mix(tmp_path: Path) -> None:
    async def slowly(letter: bytes) -> AsyncIterator[bytes]:
        for _ in range(10):
            await asyncio.sleep(0)
            yield letter * 1000

    def handle(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=slowly(request.url.path[-1].encode()))

    async with client_on(handle) as client:
        await asyncio.gather(*(client.download_artifact(artifact_id, tmp_path / "x") for artifact_id in "ab"))
    assert (tmp_path / "x").read_bytes() in (b"a" * 10_000, b"b" * 10_000)


async def test_an_error_of_an_operation_names_run_seq_id_and_kind() -> None:
    endpoint = ScriptedEndpoint([(403, {"x-request-id": "req_9"})])
    async with endpoint.client() as client:
        with pytest.raises(ApiError, match=r"run_id=run_1 sampler_id=smp_1 seq_id=0 sample: 403.*\[request req_9\]"):
            await client.sampler_operation("run_1", "smp_1", "sample", {"n": 1})
