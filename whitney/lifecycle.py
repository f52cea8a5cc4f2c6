"""End sessions from anywhere: a small synchronous client for hooks, the reaper and the command line.

The order is fixed: cancel every run, poll until all are terminal, then close the session. Everything is idempotent, so
two hooks at once, or a hook behind a `finally`, do no harm.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import httpx

from whitney.errors import ConflictError, WhitneyError
from whitney.labels import ATTEMPT
from whitney.retry import RetryPolicy
from whitney.settings import WhitneySettings
from whitney.transport import Endpoint, Refusal
from whitney.types import TERMINAL_RUN, Session, SessionList

POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class Verdict:
    """How one session ended. `runs` maps each run to its status; `message` is a sentence for a person."""

    session_id: str
    closed: bool
    runs: dict[str, str]
    seconds: float
    message: str


class LifecycleClient:
    """List, cancel, poll, close: synchronously, within a deadline."""

    __slots__ = ("_endpoint", "_http", "_until")

    def __init__(
        self, settings: WhitneySettings, *, deadline_s: float, transport: httpx.BaseTransport | None = None
    ) -> None:
        policy = RetryPolicy(deadline_s=deadline_s / 2, longest_s=2.0, retry_after_cap_s=5.0)
        self._endpoint = Endpoint(settings, policy)
        options = self._endpoint.http_options()
        options["timeout"] = httpx.Timeout(min(10.0, deadline_s), pool=None)
        self._http = httpx.Client(transport=transport, **options)
        self._until = time.monotonic() + deadline_s

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def open_sessions(self, label: tuple[str, str]) -> list[Session]:
        """The open sessions that carry a label."""
        params = {"label": f"{label[0]}:{label[1]}", "status": "open"}
        return SessionList.model_validate(self._ask("list_sessions", params=params)).sessions

    def end(self, session: Session) -> Verdict:
        """Cancel the session's runs, poll until they are terminal, close it; never raises for Whitney's reasons."""
        began = time.monotonic()
        runs = {run.run_id: str(run.status) for run in session.runs}
        try:
            self._cancel_all(runs)
            self._poll_all(runs)
            self._ask("close_session", session_id=session.session_id)
        except WhitneyError as error:
            return _verdict(session.session_id, runs, time.monotonic() - began, problem=str(error))
        return _verdict(session.session_id, runs, time.monotonic() - began)

    def _cancel_all(self, runs: dict[str, str]) -> None:
        for run_id, status in runs.items():
            if status not in TERMINAL_RUN:
                try:
                    runs[run_id] = self._ask("cancel_run", run_id=run_id)["status"]
                except ConflictError:  # it ended, or is ending, by itself; the poll below sees how
                    continue

    def _poll_all(self, runs: dict[str, str]) -> None:
        while waiting := [run_id for run_id, status in runs.items() if status not in TERMINAL_RUN]:
            if time.monotonic() > self._until:
                raise WhitneyError(f"run {waiting[0]} is still {runs[waiting[0]]}")
            time.sleep(POLL_S)
            for run_id in waiting:
                runs[run_id] = self._ask("get_run", run_id=run_id)["status"]

    def _ask(self, route: str, **options: Any) -> dict[str, Any]:
        request = self._endpoint.request(route, **options)
        attempts = self._endpoint.policy.start()
        failure: WhitneyError
        while True:
            try:
                response = self._http.send(self._endpoint.wire(self._http, request))
            except httpx.TransportError as error:
                wait, failure = attempts.wait_s(), self._endpoint.unreachable(request, error)
            else:
                answer = self._endpoint.answer(request, response)
                if not isinstance(answer, Refusal):
                    return answer
                wait, failure = answer.wait_s(attempts), answer.error
            if wait is None or time.monotonic() + wait > self._until:
                raise failure
            time.sleep(wait)


def close_sessions(
    settings: WhitneySettings, *, label: tuple[str, str], attempts_up_to: int | None = None, deadline_s: float = 25.0
) -> list[Verdict]:
    """End the open sessions that carry `label` and, if `attempts_up_to` is given, belong to no later attempt.

    Raises:
        WhitneyError: the sessions could not even be listed.
    """
    with LifecycleClient(settings, deadline_s=deadline_s) as client:
        return [
            client.end(session)
            for session in client.open_sessions(label)
            if attempts_up_to is None or _attempt(session) <= attempts_up_to
        ]


def _attempt(session: Session) -> int:
    """The attempt a session was opened by; one without a readable label belongs to the first."""
    label = session.labels.get(ATTEMPT, "1")
    return int(label) if label.isdigit() else 1


def _verdict(session_id: str, runs: dict[str, str], seconds: float, problem: str | None = None) -> Verdict:
    if problem is not None:
        message = f"COULD NOT CLOSE {session_id}: still billing ({problem}); run `whitney reap --session {session_id}`"
    else:
        ended = ", ".join(f"run {run_id} {status}" for run_id, status in runs.items()) or "no runs"
        message = f"{ended}, terminal after {seconds:.0f} s, session {session_id} closed"
    return Verdict(session_id, problem is None, runs, seconds, message)
