"""End sessions from anywhere: a small synchronous client for hooks, the reaper and the command line.

The order is fixed: cancel every run, poll until all are terminal, then close the session. Everything is idempotent, so
two hooks at once, or a hook behind a `finally`, do no harm.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import httpx

from whitney.errors import ConflictError, WhitneyError
from whitney.labels import ATTEMPT, attempt_of
from whitney.retry import RetryPolicy
from whitney.settings import WhitneySettings
from whitney.transport import AnswerT, Endpoint, Refusal, Request, parse
from whitney.types import TERMINAL_RUN, Run, Session, SessionList

POLL_S = 0.2
TELL_EVERY_S = 1.0
TELL_REFUSAL_EVERY_S = 5.0
LONGEST_REQUEST_S = 10.0


OnProgress = Callable[[str], None]
"""What is told how far an ending has come: "cancelling run r", "waiting for run r: cancelling, 4 s", …"""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How one session ended. `runs` maps each run to its status; `message` is a sentence for a person.

    `labels` are the session's own.
    """

    session_id: str
    closed: bool
    runs: dict[str, str]
    seconds: float
    message: str
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Ending:
    """A session on its way to being closed; `problem` says why it will not be."""

    session_id: str
    runs: dict[str, str]
    labels: Mapping[str, str]
    began: float = field(default_factory=time.monotonic)
    told_at: float = field(default_factory=time.monotonic)
    terminal_after_s: float = 0.0
    closed: bool = False
    problem: str | None = None

    @property
    def waiting(self) -> list[str]:
        """The runs that are not terminal yet."""
        return [run_id for run_id, status in self.runs.items() if status not in TERMINAL_RUN]

    @property
    def pending(self) -> bool:
        """Whether there is something left to try."""
        return not self.closed and self.problem is None

    def verdict(self) -> Verdict:
        if self.problem is None:
            ended = ", ".join(f"run {run_id} {status}" for run_id, status in self.runs.items()) or "no runs"
            message = f"{ended}, terminal after {self.terminal_after_s:.0f} s, session {self.session_id} closed"
        else:
            message = could_not_close(self.session_id, self.problem)
        return Verdict(self.session_id, self.closed, self.runs, self.terminal_after_s, message, self.labels)


def could_not_close(session_id: str, problem: str) -> str:
    """The sentence for the worst case: what is still billing, why, and the command that ends it."""
    return f"COULD NOT CLOSE {session_id}: still billing ({problem}); run `whitney reap --session {session_id}`"


def could_not_list(flow_run_id: str, problem: str) -> str:
    """The same where not even the sessions' ids can be had."""
    return (
        f"COULD NOT CLOSE the sessions of flow run {flow_run_id}: they may be open, and billing ({problem}); run "
        f"`whitney reap --flow-run {flow_run_id}`"
    )


class LifecycleClient:
    """List, cancel, poll, close: synchronously, within a deadline that counts from its making.

    `on_progress` is told what is being done and, each second, what is waited for: sentences for a person.
    """

    __slots__ = ("_endpoint", "_http", "_tell", "_until")

    def __init__(
        self,
        settings: WhitneySettings,
        *,
        deadline_s: float,
        on_progress: OnProgress | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        policy = RetryPolicy(deadline_s=deadline_s / 2, longest_s=2.0, retry_after_cap_s=5.0)
        self._endpoint = Endpoint(settings, policy)
        self._http = httpx.Client(transport=transport, **self._endpoint.http_options())
        self._tell = on_progress or _untold
        self._until = time.monotonic() + deadline_s

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def open_sessions(self, label: tuple[str, str] | None = None) -> list[Session]:
        """The open sessions that carry a label; all of them, anybody's, without one."""
        params = ({"label": f"{label[0]}:{label[1]}"} if label else {}) | {"status": "open"}
        return self._ask(SessionList, "list_sessions", params=params).sessions

    def session(self, session_id: str) -> Session:
        """A session with its runs.

        Raises:
            WhitneyError: it cannot be had; NotFoundError when there is none of that id.
        """
        return self._ask(Session, "get_session", session_id=session_id)

    def end(self, session: Session) -> Verdict:
        """Cancel the session's runs, poll until they are terminal, close it; never raises for Whitney's reasons."""
        return self.end_all([session])[0]

    def end_all(self, sessions: Sequence[Session]) -> list[Verdict]:
        """The same for several. All are cancelled before any is waited for: that is what stops the bill.

        Then all are looked at in turn, so that one that does not end holds no other up.
        """
        endings = [_Ending(session.session_id, _statuses(session), session.labels) for session in sessions]
        for ending in endings:
            _attempt_step(self._cancel, ending)
        while pending := [ending for ending in endings if ending.pending]:
            for ending in pending:
                _attempt_step(self._close_if_terminal, ending)
            if any(ending.pending for ending in endings):
                time.sleep(POLL_S)
        return [ending.verdict() for ending in endings]

    def _cancel(self, ending: _Ending) -> None:
        for run_id in ending.waiting:
            self._tell(f"cancelling run {run_id}")
            try:
                ending.runs[run_id] = self._ask(Run, "cancel_run", run_id=run_id).status
            except ConflictError:  # it ended, or is ending, by itself; the next look sees how
                continue

    def _close_if_terminal(self, ending: _Ending) -> None:
        """One look at a session: close it if its runs have ended; out of time, say what has not."""
        for run_id in ending.waiting:
            ending.runs[run_id] = self._ask(Run, "get_run", run_id=run_id).status
        now = time.monotonic()
        ending.terminal_after_s = now - ending.began
        if waiting := ending.waiting:
            if self._left_s() <= 0:
                raise WhitneyError(f"run {waiting[0]} is still {ending.runs[waiting[0]]}")
            if now - ending.told_at >= TELL_EVERY_S:
                ending.told_at = now
                status = ending.runs[waiting[0]]
                self._tell(f"waiting for run {waiting[0]}: {status}, {ending.terminal_after_s:.0f} s")
            return
        self._tell(f"closing session {ending.session_id}")
        try:
            self._send(self._endpoint.request("close_session", session_id=ending.session_id))
            ending.closed = True
        except ConflictError as error:
            if error.code != "run_not_terminal" or self._left_s() <= 0:
                raise
            # A run has been created since the session was read.
            ending.runs |= _statuses(self.session(ending.session_id))
            self._cancel(ending)

    def _left_s(self) -> float:
        return self._until - time.monotonic()

    def _ask(self, model: type[AnswerT], route: str, **options: Any) -> AnswerT:
        request = self._endpoint.request(route, **options)
        return parse(model, request, self._send(request))

    def _send(self, request: Request) -> dict[str, Any]:
        attempts = self._endpoint.policy.start()
        tell_at = time.monotonic()
        while True:
            wired = self._endpoint.wire(self._http, request)
            # Even the last request is given a second: after a long silence the endpoint may just have come back.
            longest = max(1.0, min(LONGEST_REQUEST_S, self._left_s()))
            wired.extensions["timeout"] = httpx.Timeout(longest).as_dict()
            try:
                answer = self._endpoint.answer(request, self._http.send(wired))
            except httpx.RequestError as error:
                answer = self._endpoint.unanswered(request, error)
            if not isinstance(answer, Refusal):
                return answer
            wait = answer.wait_s(attempts)
            if wait is None or wait > self._left_s():
                raise answer.error
            if (now := time.monotonic()) >= tell_at:
                self._tell(f"{answer.error}; trying again, {self._left_s():.0f} s left")
                tell_at = now + TELL_REFUSAL_EVERY_S
            time.sleep(wait)


def close_sessions(
    settings: WhitneySettings,
    *,
    label: tuple[str, str],
    attempts_up_to: int | None = None,
    attempt_label: str = ATTEMPT,
    deadline_s: float = 25.0,
    on_progress: OnProgress | None = None,
) -> list[Verdict]:
    """End the open sessions that carry `label` and, if `attempts_up_to` is given, belong to no later attempt.

    `attempt_label` says whose attempts are meant: the owner's, or the root's (`ROOT_ATTEMPT`).

    Raises:
        WhitneyError: the sessions could not even be listed.
    """
    with LifecycleClient(settings, deadline_s=deadline_s, on_progress=on_progress) as client:
        return client.end_all(
            [
                session
                for session in client.open_sessions(label)
                if attempts_up_to is None or attempt_of(session.labels, attempt_label) <= attempts_up_to
            ]
        )


def _untold(message: str) -> None:
    """Nobody listens."""


def _attempt_step(step: Callable[[_Ending], None], ending: _Ending) -> None:
    if ending.problem is None:
        try:
            step(ending)
        except WhitneyError as error:
            ending.problem = str(error)


def _statuses(session: Session) -> dict[str, str]:
    return {run.run_id: run.status for run in session.runs}
