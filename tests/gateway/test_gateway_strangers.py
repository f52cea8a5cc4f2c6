"""Whoever has no key learns nothing, whatever he asks; whoever has one reads nothing but what has an id."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gateway.app import build_app
from gateway.serve import GatewayServer, listen
from whitney.routes import ROUTES

if TYPE_CHECKING:
    from conftest import Caller

KEY = "key-of-the-tests"
NEEDING_A_KEY = sorted(ROUTES.keys() - {"healthz"})
STRANGERS = [
    None,
    "",
    "Bearer",
    "Bearer ",
    "Bearer wrong",
    f"Bearer {KEY}x",
    f"Bearer {KEY[:-1]}",
    f"Bearer {KEY.upper()}",
    f"Basic {KEY}",
    KEY,
]
SECRET = "what stands in a file beside the data directory"
WALKS = [
    "..",
    ".",
    "%2e%2e",
    "%2e%2e%2f%2e%2e%2fsecret",
    "..%2f..%2fsecret",
    "../../secret",
    "..%5c..%5csecret",
    "..%252f..%252fsecret",
    "%2fetc%2fpasswd",
    "//etc/passwd",
    "st_1%00.safetensors",
    "%00",
    "%ff%fe",
    "..%2fapi_key",
    "..%2fledger.sqlite",
    "%c0%ae%c0%ae%2fapi_key",
    "~root",
    "%25s",
    "'%20OR%201=1--",
    "a" * 10_000,
]


@pytest.mark.parametrize("name", NEEDING_A_KEY)
async def test_without_the_key_every_route_answers_the_same_whether_the_id_exists_or_not(
    caller: Caller, name: str
) -> None:
    route = ROUTES[name]
    existing = await _existing_ids(caller)
    absent = dict.fromkeys(existing, "absent")
    answers = set()
    for authorization in STRANGERS:
        headers = [] if authorization is None else [(b"authorization", authorization.encode())]
        for ids in (existing, absent):
            for body in (b"", b"{}", b"{"):
                request = caller.http.build_request(route.method, route.path(**_fields(name, ids)), content=body)
                del request.headers["authorization"]
                request.headers.update(headers)
                answer = await caller.http.send(request)
                assert answer.headers.keys() == {"content-length", "content-type", "www-authenticate", "x-request-id"}
                answers.add((answer.status_code, answer.text))
    ((status, text),) = answers
    error = json.loads(text)["error"]
    assert (status, error["code"], error["retryable"], error["details"]) == (401, "unauthorized", False, {})
    assert KEY not in text


async def test_without_the_key_no_path_and_no_verb_is_told_apart(caller: Caller) -> None:
    paths = ["/", "/v1/training/nothing", "/healthz/", "/v1/training/sessions/../../healthz", "/docs", "/openapi.json"]
    found = {
        (await caller.http.request(method, path, headers={"authorization": "Bearer wrong"})).status_code
        for path in paths
        for method in ("GET", "POST", "PUT", "OPTIONS", "DELETE")
    }
    assert found == {401}


def _fields(name: str, ids: dict[str, str]) -> dict[str, str]:
    return {field: ids[field] for field in re.findall(r"{(\w+)}", ROUTES[name].template)}


async def _existing_ids(caller: Caller) -> dict[str, str]:
    session_id = await caller.open_session()
    run_id = await caller.open_run(session_id)
    sampler_id = await caller.open_sampler(run_id)
    state_id = (await caller.do(run_id, 1, "save_state", {}))["state_id"]
    artifact_id = (await caller.do(run_id, 2, "export_lora", {}))["artifact_id"]
    return {
        "session_id": session_id,
        "run_id": run_id,
        "sampler_id": sampler_id,
        "seq_id": "0",
        "state_id": state_id,
        "artifact_id": artifact_id,
    }


@pytest.fixture
async def port(caller: Caller, tmp_path: Path) -> AsyncIterator[int]:
    """The gateway behind its real server: what becomes of a path is decided there too."""
    for name in ("secret", "secret.safetensors", "secret.tar.gz"):
        (tmp_path.parent / name).write_text(SECRET)
    listening = asyncio.Event()
    with listen("127.0.0.1", 0) as listener:
        server = GatewayServer(build_app(caller.gateway, KEY), caller.gateway, listening.set, faulty=False)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        await asyncio.wait_for(listening.wait(), 10)
        yield listener.getsockname()[1]
        server.should_exit = True
        await serving


async def test_an_id_that_walks_paths_is_no_id_on_any_route(caller: Caller, port: int) -> None:
    existing = await _existing_ids(caller)
    wrong = await asyncio.to_thread(_walk_everywhere, port, existing)
    assert wrong == []


def _walk_everywhere(port: int, existing: dict[str, str]) -> list[tuple[str, str, int, str]]:
    """Every id of every route replaced by every walk, sent as it stands; what was not answered with 404."""
    wrong = []
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    for name in NEEDING_A_KEY:
        route = ROUTES[name]
        for field in _fields(name, existing):
            for walk in WALKS:
                path = route.template.format(**existing | {field: walk})
                connection.request(route.method, path, _valid_body(name), {"authorization": f"Bearer {KEY}"})
                answer = connection.getresponse()
                text = answer.read().decode("utf-8", "replace")
                # A seq_id is a number: what is none is refused by the field's name.
                refused = answer.status == 404 or (field == "seq_id" and answer.status == 422)
                if not refused or SECRET in text or KEY in text or "root:" in text:
                    wrong.append((name, walk[:40], answer.status, text[:200]))
    connection.close()
    return wrong


def _valid_body(name: str) -> bytes | None:
    bodies = {
        "create_run": {"create_key": "walker", "provider": "local", "model": "tiny"},
        "run_operation": {"seq_id": 9, "kind": "save_state", "payload": {}},
        "sampler_operation": {"seq_id": 9, "kind": "logprobs", "payload": {"input": {"token_ids": [5, 6]}}},
    }
    return json.dumps(bodies[name]).encode() if name in bodies else None


@pytest.mark.parametrize("walk", ["../../secret", "/etc/passwd", "..", "\x00", "a" * 10_000])
@pytest.mark.parametrize("field", ["state_id", "artifact_id"])
async def test_a_run_cannot_begin_from_a_path(caller: Caller, field: str, walk: str) -> None:
    body = caller.run_body(initial={field: walk})
    answer = await caller.send("POST", f"/sessions/{await caller.open_session()}/runs", body)
    kind = field.removesuffix("_id")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, f"{kind}_not_found")
    assert len(answer.text) < 300
