"""The wire as the flow's process sees it: every request in a journal, and a hand on the switch at an exact place.

Both clients are watched, the asynchronous one of the flow and the synchronous one of its hook. The journal is a file of
JSON lines that are written one by one, so that it is complete however the process ends.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import orjson
import zstandard

from benchmarks.chaos.scenario import Fault, When
from whitney.routes import ROUTES
from whitney.transport import MAX_CONNECTIONS
from whitney.types import TERMINAL_OPERATION

_PATHS = [
    (name, route.method, re.compile(re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", route.template)))
    for name, route in ROUTES.items()
]


@dataclass(slots=True)
class Seen:
    """One request: which it is, the how-manieth of its subject, and for an operation its place and a digest."""

    route: str
    subject: str
    nth: int
    run: str | None = None
    seq: int | None = None
    kind: str | None = None
    digest: str | None = None
    began: float = field(default_factory=time.monotonic)

    def facts(self) -> dict[str, Any]:
        """For the journal."""
        named = {"route": self.route, "subject": self.subject, "nth": self.nth}
        place = {"run": self.run, "seq": self.seq, "kind": self.kind, "digest": self.digest}
        return named | {key: value for key, value in place.items() if value is not None}


class Journal:
    """Appends lines; each is one write, so that two processes may share the file."""

    def __init__(self, path: Path, attempt: int) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._attempt = attempt
        self._part: str | None = None

    def begin(self, part: str) -> None:
        """From here on the flow is at that part."""
        self._part = part
        self.write("begun")

    def write(self, what: str, **facts: Any) -> None:
        """Add a line."""
        line = {"what": what, "attempt": self._attempt, "at": time.time(), "part": self._part, **facts}
        os.write(self._file, orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))


class Tap:
    """Names requests, writes them down, and sets off what is due: `trigger` gets the fault, and may return."""

    def __init__(self, journal: Journal, faults: tuple[Fault, ...], trigger: Callable[[Fault], None]) -> None:
        self.journal = journal
        self._faults = list(faults)
        self._trigger = trigger
        self._counts: Counter[str] = Counter()
        self._kinds: dict[tuple[str, int], tuple[str, int]] = {}

    def due(self, subject: str, nth: int, when: When) -> Fault | None:
        """Set off the fault of this place, once, and name it."""
        for fault in self._faults:
            if (fault.subject, fault.nth, fault.when) == (subject, nth, when):
                self._faults.remove(fault)
                self.journal.write("fired", fault=str(fault), action=fault.action)
                self._trigger(fault)
                return fault
        return None

    def moment(self, subject: str, when: When) -> Fault | None:
        """A place in the flow that is no request."""
        if when == "before":
            self._counts[subject] += 1
        return self.due(subject, self._counts[subject], when)

    def sees(self, request: httpx.Request) -> Seen:
        """Name a request that is about to be sent."""
        path = request.url.raw_path.decode().partition("?")[0]
        for name, method, pattern in _PATHS:
            if method == request.method and (found := pattern.fullmatch(path)):
                return self._named(name, found.groupdict(), request)
        raise AssertionError(f"{request.method} {path} is no route of Whitney's")

    def _named(self, route: str, ids: dict[str, str], request: httpx.Request) -> Seen:
        run = ids.get("run_id")
        if route in {"run_operation", "sampler_operation"}:
            body = orjson.loads(_plain(request))
            kind, seq = body["kind"], body["seq_id"]
            digest = hashlib.sha256(orjson.dumps(body["payload"], option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]
            known = self._kinds.get((str(run), seq))
            nth = known[1] if known and known[0] == kind else self._next(f"post-{kind}")
            self._kinds[str(run), seq] = (kind, nth)
            return Seen(route, f"post-{kind}", nth, run, seq, kind, digest)
        if route == "get_operation":
            seq = int(ids["seq_id"])
            kind, nth = self._kinds.get((str(run), seq), ("unknown", 0))
            return Seen(route, f"poll-{kind}", nth, run, seq, kind)
        return Seen(route, route, self._next(route), run)

    def _next(self, subject: str) -> int:
        self._counts[subject] += 1
        return self._counts[subject]

    def sent(self, seen: Seen) -> None:
        """It is on its way."""
        self.journal.write("sent", **seen.facts())

    def answered(self, seen: Seen, status: int) -> None:
        """An answer, of whatever kind."""
        seconds = round(time.monotonic() - seen.began, 3)
        self.journal.write("answered", status=status, seconds=seconds, **seen.facts())

    def broken(self, seen: Seen, error: Exception) -> None:
        """No answer."""
        self.journal.write("broken", error=type(error).__name__, **seen.facts())


class WatchedTransport(httpx.AsyncBaseTransport):
    """What the flow's client sends through."""

    def __init__(self, tap: Tap) -> None:
        limits = httpx.Limits(max_connections=MAX_CONNECTIONS, max_keepalive_connections=MAX_CONNECTIONS)
        self._real = httpx.AsyncHTTPTransport(limits=limits)
        self._tap = tap

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send, and see what comes."""
        seen = self._tap.sees(request)
        await _held(self._tap.due(seen.subject, seen.nth, "before"))
        self._tap.sent(seen)
        try:
            response = await self._real.handle_async_request(request)
            if seen.route != "get_artifact":
                await response.aread()
        except httpx.TransportError as error:
            self._tap.broken(seen, error)
            raise
        self._tap.answered(seen, response.status_code)
        if _settles(seen, response):
            await _held(self._tap.due(seen.subject, seen.nth, "after"))
        return response

    async def aclose(self) -> None:
        """Close the connections."""
        await self._real.aclose()


class WatchedSyncTransport(httpx.BaseTransport):
    """What the client sends through that ends sessions: in the flow's own process, and in the hook's."""

    def __init__(self, tap: Tap) -> None:
        self._real = httpx.HTTPTransport()
        self._tap = tap

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send, and see what comes."""
        seen = self._tap.sees(request)
        self._tap.due(seen.subject, seen.nth, "before")
        self._tap.sent(seen)
        try:
            response = self._real.handle_request(request)
        except httpx.TransportError as error:
            self._tap.broken(seen, error)
            raise
        self._tap.answered(seen, response.status_code)
        self._tap.due(seen.subject, seen.nth, "after")
        return response

    def close(self) -> None:
        """Close the connections."""
        self._real.close()


async def _held(fault: Fault | None) -> None:
    """The request stays where it is while somebody outside ends the process."""
    if fault is not None and fault.action in {"sigterm", "cancel"}:
        await asyncio.sleep(3600)


def _settles(seen: Seen, response: httpx.Response) -> bool:
    """Whether an answer is the one that was waited for: a refusal is not, nor is a poll that ran out."""
    if not response.is_success:
        return False
    return seen.route != "get_operation" or orjson.loads(response.content)["status"] in TERMINAL_OPERATION


def _plain(request: httpx.Request) -> bytes:
    content = request.content
    return zstandard.decompress(content) if request.headers.get("content-encoding") == "zstd" else content
