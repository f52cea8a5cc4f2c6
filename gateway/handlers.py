"""One handler a route: from the request to the rules and back. What each means stands in the rules."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import FileResponse, Response

from gateway.body import read_body
from gateway.gateway import Gateway
from gateway.validation import parse, parse_label_filters, parse_operation, parse_seq_id, parse_wait_s
from whitney.types import CreateRun, CreateSession

Handler = Callable[[Request], Awaitable[Response]]

VERSION = version("whitney-pipelines")

_LONG_BODY = 1 << 18
"""Bytes from which on a body is parsed beside the event loop: above, parsing takes longer than a thread's start."""


def gateway_of(request: Request) -> Gateway:
    """The gateway that serves this request."""
    gateway: Gateway = request.app.state.gateway
    return gateway


def answer(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A JSON answer."""
    return Response(orjson.dumps(content), status, headers, media_type="application/json")


async def body_of(request: Request) -> bytes:
    """The decompressed body, read once and kept for the request's lifetime."""
    if not hasattr(request.state, "body"):
        limit: int = request.app.state.max_body_bytes
        request.state.body = await read_body(request.stream(), request.headers.get("content-encoding"), limit)
    body: bytes = request.state.body
    return body


async def healthz(request: Request) -> Response:
    """GET /healthz: alive; the one route without a key."""
    return answer({"status": "ok", "version": VERSION})


async def capabilities(request: Request) -> Response:
    """GET /capabilities."""
    return answer({"rows": [row.model_dump() for row in gateway_of(request).capabilities()]})


async def create_session(request: Request) -> Response:
    """POST /sessions."""
    sessions = gateway_of(request).sessions
    return answer(sessions.on_the_wire(sessions.create(parse(CreateSession, await body_of(request)))))


async def list_sessions(request: Request) -> Response:
    """GET /sessions?label=key:value&status=open."""
    sessions = gateway_of(request).sessions
    labels = parse_label_filters(request.query_params.getlist("label"))
    found = sessions.find(labels, request.query_params.get("status"))
    return answer({"sessions": [sessions.on_the_wire(session) for session in found]})


async def get_session(request: Request) -> Response:
    """GET /sessions/{session_id}."""
    sessions = gateway_of(request).sessions
    return answer(sessions.on_the_wire(sessions.get(request.path_params["session_id"])))


async def heartbeat(request: Request) -> Response:
    """POST /sessions/{session_id}/heartbeat."""
    sessions = gateway_of(request).sessions
    return answer(sessions.on_the_wire(sessions.heartbeat(request.path_params["session_id"])))


async def close_session(request: Request) -> Response:
    """POST /sessions/{session_id}/close."""
    sessions = gateway_of(request).sessions
    return answer(sessions.on_the_wire(sessions.close(request.path_params["session_id"])))


async def create_run(request: Request) -> Response:
    """POST /sessions/{session_id}/runs."""
    gateway = gateway_of(request)
    session = gateway.sessions.get(request.path_params["session_id"])
    run = await gateway.runs.create(session, parse(CreateRun, await body_of(request)))
    return answer(gateway.runs.on_the_wire(run))


async def get_run(request: Request) -> Response:
    """GET /runs/{run_id}."""
    runs = gateway_of(request).runs
    return answer(runs.on_the_wire(runs.get(request.path_params["run_id"])))


async def finish_run(request: Request) -> Response:
    """POST /runs/{run_id}/finish."""
    runs = gateway_of(request).runs
    return answer(runs.on_the_wire(runs.finish(request.path_params["run_id"])), 202)


async def cancel_run(request: Request) -> Response:
    """POST /runs/{run_id}/cancel."""
    runs = gateway_of(request).runs
    return answer(runs.on_the_wire(runs.cancel(request.path_params["run_id"])), 202)


async def post_operation(request: Request) -> Response:
    """POST /runs/{run_id}/operations and /runs/{run_id}/samplers/{sampler_id}/operations."""
    gateway, ids = gateway_of(request), request.path_params
    gateway.runs.get(ids["run_id"])  # a run that is not there is said before a body that is wrong
    sampler_id: str | None = ids.get("sampler_id")
    body = await body_of(request)
    if len(body) > _LONG_BODY:
        parsed = await asyncio.to_thread(parse_operation, body, sampler=sampler_id is not None)
    else:
        parsed = parse_operation(body, sampler=sampler_id is not None)
    return answer(gateway.operations.post(ids["run_id"], sampler_id, parsed).on_the_wire(), 202)


async def get_operation(request: Request) -> Response:
    """GET /runs/{run_id}/operations/{seq_id}?wait_s=S."""
    seq_id = parse_seq_id(request.path_params["seq_id"])
    wait_s = parse_wait_s(request.query_params.get("wait_s"))
    record = await gateway_of(request).operations.wait(request.path_params["run_id"], seq_id, wait_s)
    return answer(record.on_the_wire())


async def get_state(request: Request) -> Response:
    """GET /states/{state_id}: what is known of it."""
    return answer((await gateway_of(request).files.state(request.path_params["state_id"])).model_dump())


async def delete_state(request: Request) -> Response:
    """DELETE /states/{state_id}."""
    gateway_of(request).files.delete("state", request.path_params["state_id"])
    return answer({"state_id": request.path_params["state_id"], "deleted": True})


async def get_artifact(request: Request) -> Response:
    """GET /artifacts/{artifact_id}: the tar.gz of a PEFT directory."""
    record, path = gateway_of(request).files.download(request.path_params["artifact_id"])
    headers = {"x-content-sha256": record.sha256}
    return FileResponse(path, media_type="application/gzip", filename=path.name, headers=headers)


async def delete_artifact(request: Request) -> Response:
    """DELETE /artifacts/{artifact_id}."""
    gateway_of(request).files.delete("artifact", request.path_params["artifact_id"])
    return answer({"artifact_id": request.path_params["artifact_id"], "deleted": True})


HANDLERS: dict[str, Handler] = {
    "healthz": healthz,
    "capabilities": capabilities,
    "create_session": create_session,
    "list_sessions": list_sessions,
    "get_session": get_session,
    "heartbeat": heartbeat,
    "close_session": close_session,
    "create_run": create_run,
    "get_run": get_run,
    "run_operation": post_operation,
    "sampler_operation": post_operation,
    "get_operation": get_operation,
    "finish_run": finish_run,
    "cancel_run": cancel_run,
    "get_state": get_state,
    "delete_state": delete_state,
    "get_artifact": get_artifact,
    "delete_artifact": delete_artifact,
}
"""By the names of `whitney.routes.ROUTES`."""
