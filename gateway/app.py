"""The Starlette application: every route of `whitney.routes`, a key in front, one form of error behind."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import sqlite3
from contextlib import suppress
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.errors import GatewayError
from gateway.faults import BrokenConnection
from gateway.gateway import Gateway
from gateway.handlers import HANDLERS, Handler, answer, body_of
from gateway.parts import logger, report
from gateway.storage import KEY_VARIABLE
from gateway.validation import parse_seq_id
from whitney.routes import ROUTES

_DISK_ERRORS = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)
_NO_KEY_NEEDED = ROUTES["healthz"].template


def build_app(gateway: Gateway, api_key: str, *, max_body_bytes: int = 64 << 20) -> Starlette:
    """The HTTP side of a started gateway.

    Args:
        gateway: what answers.
        api_key: the bearer key asked for on every route but /healthz.
        max_body_bytes: largest request body, counted after decompression.
    """
    app = Starlette(
        routes=[
            Route(route.template, _endpoint(name, HANDLERS[name]), methods=[route.method])
            for name, route in ROUTES.items()
        ],
        middleware=[Middleware(_RequestId), Middleware(_RequireKey, api_key=api_key)],
        exception_handlers={HTTPException: _on_http_exception},
    )
    app.state.gateway = gateway
    app.state.max_body_bytes = max_body_bytes
    return app


def refusal(error: GatewayError) -> Response:
    """`{"error": {"code", "message", "retryable", "details"}}`."""
    return answer({"error": error.detail.model_dump()}, error.status, error.headers)


class _RequestId:
    """`x-request-id` on every answer, so that a client's error and the gateway's log can be laid side by side."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = scope["request_id"] = f"req_{secrets.token_hex(6)}"

        async def send_with_id(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"x-request-id", request_id.encode())]
            await send(message)

        await self._app(scope, receive, send_with_id)


class _RequireKey:
    """`Authorization: Bearer <key>`, compared in constant time."""

    def __init__(self, app: ASGIApp, api_key: str) -> None:
        self._app = app
        # Digests have one length, so that not even the key's length can be timed.
        self._expected = hashlib.sha256(api_key.encode()).digest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] == _NO_KEY_NEEDED or self._allows(Request(scope)):
            await self._app(scope, receive, send)
            return
        error = GatewayError(
            401,
            "unauthorized",
            f"no key, or one this gateway does not know: send Authorization: Bearer <the key in ${KEY_VARIABLE}>",
            headers={"www-authenticate": "Bearer"},
        )
        await refusal(error)(scope, receive, send)

    def _allows(self, request: Request) -> bool:
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        given = hashlib.sha256(key.strip().encode()).digest()
        return hmac.compare_digest(given, self._expected) and scheme.lower() == "bearer"


def _endpoint(name: str, handler: Handler) -> Handler:
    async def endpoint(request: Request) -> Response:
        try:
            if not request.app.state.gateway.faults:
                return await handler(request)
            return await _with_faults(name, handler, request)
        except GatewayError as error:
            return refusal(error)
        except Exception as error:  # the last line of defence
            if _is_of_the_disk(error):
                logger.error("%s %s: the ledger cannot be written: %s", request.scope["request_id"], name, error)
                return refusal(_not_recorded(error))
            report(f"{request.scope['request_id']} {name}", error)
            return refusal(GatewayError(500, "internal", "the gateway failed; its log has the place", retryable=True))

    endpoint.__name__ = name
    return endpoint


def _is_of_the_disk(error: Exception) -> bool:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # without what SQLite knows more exactly
    return isinstance(error, sqlite3.OperationalError) and code in _DISK_ERRORS


def _not_recorded(error: Exception) -> GatewayError:
    # SQLite's own words ("database or disk is full") speak of the file, never of what was to be written.
    message = f"the gateway's ledger.sqlite cannot be written ({error}), so nothing was done: make room on its disk"
    return GatewayError(507, "ledger_not_written", message, retryable=True)


async def _with_faults(name: str, handler: Handler, request: Request) -> Response:
    faults = request.app.state.gateway.faults
    facts: dict[str, Any] = {"route": name, "kind": None, "seq_id": None}
    if name.endswith("_operation") and request.method == "POST":
        with suppress(ValueError, AttributeError):  # a body that is no JSON object is the handler's to refuse
            content = orjson.loads(await body_of(request))
            facts |= {"kind": content.get("kind"), "seq_id": content.get("seq_id")}
    elif "seq_id" in request.path_params:
        facts["seq_id"] = parse_seq_id(request.path_params["seq_id"])
    fault = faults.fire(("status", "reset", "slow_answer"), **facts)
    if fault is not None and fault.action == "status":
        headers = {} if fault.retry_after_s is None else {"retry-after": f"{fault.retry_after_s:g}"}
        message = f"scripted fault: {fault.status}"
        return refusal(GatewayError(fault.status, "fault", message, retryable=True, headers=headers))
    if fault is not None and fault.action == "reset":
        return BrokenConnection()
    if fault is not None:
        await asyncio.sleep(fault.delay_s)
    response = await handler(request)
    return BrokenConnection() if faults.fire(("drop_answer",), **facts) else response


async def _on_http_exception(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    codes = {404: "route_not_found", 405: "method_not_allowed"}
    message = f"{request.method} is not served on this path; the routes are listed in docs/whitney-api.md"
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    return refusal(GatewayError(status, codes.get(status, "http_error"), message, headers=headers))
