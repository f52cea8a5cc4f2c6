"""An endpoint on a bad line: one run's ledger behind httpx.MockTransport, with a fault for each post.

The client's own code runs whole; only the network is played, since no real one breaks at a chosen byte.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Iterable
from typing import Any

import httpx
import orjson
import zstandard
from pydantic import SecretStr

from whitney.client import WhitneyClient
from whitney.retry import RetryPolicy
from whitney.settings import WhitneySettings

KEY = "sk-planted-0123456789"
BASE_URL = "http://127.0.0.1:1"
RUN = "run_1"


def settings(**changes: Any) -> WhitneySettings:
    return WhitneySettings(**{"base_url": BASE_URL, "api_key": SecretStr(KEY), **changes})


class FakeTime:
    """A clock that moves only when somebody sleeps; `slept` keeps each wait."""

    def __init__(self) -> None:
        self.now = 1_000_000.0
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)

    def policy(self, **changes: Any) -> RetryPolicy:
        """Waits are the upper bound of their jitter."""
        return RetryPolicy(
            **{
                "clock": lambda: self.now,
                "now": lambda: self.now,
                "uniform": lambda low, high: high,
                "sleep": self.sleep,
                **changes,
            }
        )


class ScriptedEndpoint:
    """Accepts operations as a gateway does: the next seq_id only, the same body again, 422 for `{"refuse": true}`.

    `faults`, one for each operation post: "ok"; "lost" (accepted, and the answer never arrives); "reset" (not
    accepted); "garbled" (accepted, and a proxy's page comes back); or a status with headers, as (429, {…}).
    """

    def __init__(self, faults: Iterable[Any] = ()) -> None:
        self.faults = deque(faults)
        self.ledger: list[dict[str, Any]] = []
        self.posts: list[bytes] = []
        self.run_reads = 0
        self.most_posts_at_once = 0
        self.outcomes: dict[int, dict[str, Any]] = {}
        self.gate = asyncio.Event()
        self.gate.set()
        self._posting = 0

    def client(self, time: FakeTime | None = None, **changes: Any) -> WhitneyClient:
        retry = (time or FakeTime()).policy()
        return WhitneyClient(settings(**changes), transport=httpx.MockTransport(self.handle), retry=retry)

    @property
    def kinds(self) -> list[str]:
        return [operation["kind"] for operation in self.ledger]

    @property
    def numbers(self) -> list[int]:
        return [operation["payload"]["n"] for operation in self.ledger]

    async def handle(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if request.method == "POST" and path.endswith("/operations"):
            self._posting += 1
            self.most_posts_at_once = max(self.most_posts_at_once, self._posting)
            try:
                return await self._post(request)
            finally:
                self._posting -= 1
        if path.endswith(f"/runs/{RUN}"):
            self.run_reads += 1
            return httpx.Response(200, json={"run_id": RUN, "status": "active", "next_seq_id": len(self.ledger)})
        return self._operation(int(path.rsplit("/", 1)[1]))

    async def _post(self, request: httpx.Request) -> httpx.Response:
        self.posts.append(request.content)
        await asyncio.sleep(0)  # where a second post could overtake
        await self.gate.wait()
        fault = self.faults.popleft() if self.faults else "ok"
        if fault == "reset":
            raise httpx.ReadError("reset", request=request)
        if isinstance(fault, tuple):
            return httpx.Response(fault[0], headers=fault[1], json=error_body("fault"))
        answer = self._accept(body_of(request))
        if fault == "lost":
            raise httpx.RemoteProtocolError("closed without an answer", request=request)
        return httpx.Response(200, text="<html>") if fault == "garbled" else answer

    def _accept(self, body: dict[str, Any]) -> httpx.Response:
        seq_id = body["seq_id"]
        if body["payload"].get("refuse"):
            return httpx.Response(422, json=error_body("invalid_request"))
        if seq_id < len(self.ledger) and self.ledger[seq_id] != body:
            return httpx.Response(409, json=error_body("seq_conflict"))
        if seq_id > len(self.ledger):
            return httpx.Response(409, json=error_body("seq_gap"))
        if seq_id == len(self.ledger):
            self.ledger.append(body)
        return httpx.Response(202, json={})

    def _operation(self, seq_id: int) -> httpx.Response:
        body = self.ledger[seq_id]
        record = {"run_id": RUN, "seq_id": seq_id, "kind": body["kind"], "status": "succeeded"}
        record["result"] = {"echo": body["payload"]}
        return httpx.Response(200, json=record | self.outcomes.get(seq_id, {}))


def body_of(request: httpx.Request) -> dict[str, Any]:
    """A request's JSON, whichever way it travelled."""
    content = request.content
    if request.headers.get("content-encoding") == "zstd":
        content = zstandard.ZstdDecompressor().decompress(content)
    body: dict[str, Any] = orjson.loads(content)
    return body


def error_body(code: str, message: str = "scripted") -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "retryable": False, "details": {}}}


def read_only(answer: Any) -> str:
    """Everything an object would tell a log, for searching."""
    return json.dumps(answer, default=repr)
