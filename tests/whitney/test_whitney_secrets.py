"""The key and token values are planted, and must be found nowhere but on the wire."""

from __future__ import annotations

import asyncio
import copy
import logging
import pickle
import traceback
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from scripted_endpoint import KEY, FakeTime, ScriptedEndpoint, settings

from whitney.client import WhitneyClient
from whitney.errors import ApiError, WhitneyError, api_error
from whitney.lifecycle import LifecycleClient, close_sessions
from whitney.transport import Endpoint

TOKEN = 31415926


def chain(error: BaseException) -> Iterator[BaseException]:
    """An exception with everything that a traceback would print behind it."""
    yield error
    for linked in (error.__cause__, error.__context__):
        if linked is not None:
            yield from chain(linked)


def everything_said(error: BaseException) -> str:
    said = [*traceback.format_exception(error)]
    for link in chain(error):
        said += [repr(link), str(vars(link)), *(repr(vars(value)) for value in vars(link).values() if is_object(value))]
        assert not isinstance(link, httpx.HTTPError), "httpx's exceptions hold the request with its headers"
    return "".join(said)


def is_object(value: Any) -> bool:
    return hasattr(value, "__dict__")


def echo_headers(status: int) -> httpx.MockTransport:
    """A debugging proxy that answers with whatever it was sent."""

    def handle(request: httpx.Request) -> httpx.Response:
        said = f"headers were {request.headers['authorization']}"
        details = {"request": dict(request.headers)}
        return httpx.Response(status, json={"error": {"code": "echo", "message": said, "details": details}})

    return httpx.MockTransport(handle)


def breaks(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError(f"cannot send {request.headers['authorization']}", request=request)


def answers_otherwise(request: httpx.Request) -> httpx.Response:
    return httpx.Response(200, json={"run_id": [TOKEN], "status": KEY})


def client_on(transport: httpx.AsyncBaseTransport) -> WhitneyClient:
    return WhitneyClient(settings(), transport=transport, retry=FakeTime().policy(deadline_s=1))


@pytest.mark.parametrize("status", [307, 400, 401, 404, 409, 413, 422, 429, 500])
async def test_no_error_answer_shows_the_key_even_one_that_repeats_it(status: int) -> None:
    async with client_on(echo_headers(status)) as client:
        with pytest.raises(ApiError) as caught:
            await client.get_run("run_1")
    assert "headers were Bearer [key]" in str(caught.value)
    assert KEY not in everything_said(caught.value)
    assert KEY.encode() not in pickle.dumps(caught.value)


@pytest.mark.parametrize("handler", [breaks, answers_otherwise])
async def test_no_broken_connection_and_no_strange_answer_shows_key_or_tokens(handler: Any) -> None:
    async with client_on(httpx.MockTransport(handler)) as client:
        with pytest.raises(WhitneyError) as caught:
            await client.get_run("run_1")
    said = everything_said(caught.value)
    assert "get_run run_id=run_1" in said
    assert KEY not in said
    assert str(TOKEN) not in said
    assert KEY.encode() not in pickle.dumps(caught.value)


def test_the_synchronous_client_is_as_discreet() -> None:
    for transport in (echo_headers(403), httpx.MockTransport(breaks), httpx.MockTransport(answers_otherwise)):
        with LifecycleClient(settings(), deadline_s=0.2, transport=transport) as client:
            with pytest.raises(WhitneyError) as caught:
                client.open_sessions(("k", "v"))
            assert KEY not in everything_said(caught.value)


async def test_an_operations_failure_shows_no_token_of_its_payload() -> None:
    endpoint = ScriptedEndpoint()
    async with endpoint.client() as client:
        refused = client.submit_run_operation("run_1", "forward", {"n": TOKEN, "refuse": True})
        behind = client.submit_run_operation("run_1", "optim_step", {"n": TOKEN})
        outcomes = await asyncio.gather(refused, behind, return_exceptions=True)
    for outcome in outcomes:
        assert isinstance(outcome, WhitneyError)
        assert str(TOKEN) not in everything_said(outcome)
    assert str(TOKEN) not in repr(refused)


def test_requests_settings_and_clients_show_neither() -> None:
    endpoint = Endpoint(settings())
    request = endpoint.request("run_operation", run_id="run_1", body={"payload": {"token_ids": [TOKEN]}})
    for shown in (endpoint, request, settings(), endpoint.policy):
        assert KEY not in f"{shown!r} {shown}"
        assert str(TOKEN) not in f"{shown!r} {shown}"
    assert KEY not in settings().model_dump_json()


async def test_a_client_has_no_dict_to_store_and_is_never_pickled() -> None:
    async with client_on(echo_headers(401)) as client:
        with LifecycleClient(settings(), deadline_s=1) as hook:
            for holder in (client, hook, Endpoint(settings())):
                assert not hasattr(holder, "__dict__")
                assert KEY not in repr(holder)
                with pytest.raises(TypeError, match="never pickled"):
                    pickle.dumps(holder)
                with pytest.raises(TypeError, match="never pickled"):
                    copy.deepcopy(holder)


async def test_the_logs_of_a_whole_request_show_no_key_not_even_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    answers = iter([b"503 busy", b"200 OK", b"200 OK"])

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert KEY.encode() in await reader.readuntil(b"\r\n\r\n")
        body = b'{"sessions": []}'
        head = b"HTTP/1.1 %b\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % (next(answers), len(body))
        writer.write(head + body)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        made = settings(base_url=f"http://127.0.0.1:{port}")
        async with WhitneyClient(made) as client:
            await client.heartbeat("ses_1")
        assert await asyncio.to_thread(close_sessions, made, label=("k", "v")) == []
    assert "asking again" in caplog.text
    assert "httpcore" in {record.name.split(".")[0] for record in caplog.records}
    assert KEY not in caplog.text


def test_an_endpoints_endless_message_is_cut() -> None:
    error = api_error(400, {"error": {"code": "x", "message": "a" * 100_000}}, where="get_run")
    assert len(str(error)) < 2100
