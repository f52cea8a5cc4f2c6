"""Ending sessions: the fixed order, bounded time, and a verdict a person can act on."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest
from scripted_endpoint import error_body, settings

from whitney.errors import WhitneyError
from whitney.labels import ATTEMPT
from whitney.lifecycle import LifecycleClient
from whitney.types import Session


class Sessions:
    """Sessions with runs that take `polls` reads to become terminal after a cancel; None: they never do."""

    def __init__(self, runs_of: dict[str, list[str]], polls: dict[str, int | None] | None = None) -> None:
        self.runs_of = runs_of
        self.polls: dict[str, int | None] = {run: 1 for runs in runs_of.values() for run in runs}
        self.polls |= polls or {}
        self.status = dict.fromkeys(self.polls, "active")
        self.asked: list[str] = []
        self.late_run: str | None = None

    def sessions(self) -> list[Session]:
        return [Session.model_validate(self.session(session_id)) for session_id in self.runs_of]

    def session(self, session_id: str) -> dict[str, Any]:
        runs = [{"run_id": run, "status": self.status[run]} for run in self.runs_of[session_id]]
        return {"session_id": session_id, "status": "open", "labels": {ATTEMPT: "1"}, "runs": runs}

    def handle(self, request: httpx.Request) -> httpx.Response:
        verb = re.sub(r"^/v1/training/", "", request.url.path)
        self.asked.append(verb)
        noun, name, *rest = verb.split("/")
        if noun == "runs" and rest == ["cancel"]:
            self.status[name] = "cancelling"
            return self._run(name)
        if noun == "runs":
            left = self.polls[name]
            if self.status[name] == "cancelling" and left is not None:
                self.polls[name] = left - 1
                self.status[name] = "cancelled" if left <= 1 else "cancelling"
            return self._run(name)
        if rest == ["close"] and self.late_run is not None:
            late, self.late_run = self.late_run, None
            self.runs_of[name].append(late)
            self.polls[late], self.status[late] = 1, "active"
            return httpx.Response(409, json=error_body("run_not_terminal"))
        return httpx.Response(200, json=self.session(name))

    def _run(self, name: str) -> httpx.Response:
        return httpx.Response(200, json={"run_id": name, "status": self.status[name]})

    def client(self, deadline_s: float = 20.0) -> LifecycleClient:
        return LifecycleClient(settings(), deadline_s=deadline_s, transport=httpx.MockTransport(self.handle))


def test_every_run_is_cancelled_then_polled_until_terminal_then_the_session_closed() -> None:
    gateway = Sessions({"ses_1": ["policy", "critic"]}, {"critic": 2})
    with gateway.client() as client:
        verdict = client.end(gateway.sessions()[0])
    assert gateway.asked == [
        "runs/policy/cancel",
        "runs/critic/cancel",
        "runs/policy",
        "runs/critic",
        "runs/critic",
        "sessions/ses_1/close",
    ]
    assert verdict.closed
    assert verdict.runs == {"policy": "cancelled", "critic": "cancelled"}
    assert verdict.message.startswith("run policy cancelled, run critic cancelled, terminal after ")
    assert verdict.message.endswith("session ses_1 closed")


def test_of_several_sessions_all_are_cancelled_before_any_is_waited_for_and_a_stuck_one_holds_no_other_up() -> None:
    gateway = Sessions({"stuck": ["forever"], "fine": ["quick"]}, {"forever": None})
    with gateway.client(deadline_s=0.5) as client:
        stuck, fine = client.end_all(gateway.sessions())
    assert gateway.asked[:2] == ["runs/forever/cancel", "runs/quick/cancel"]
    assert not stuck.closed
    assert "COULD NOT CLOSE stuck: still billing (run forever is still cancelling)" in stuck.message
    assert "whitney reap --session stuck" in stuck.message
    assert fine.closed
    assert "sessions/stuck/close" not in gateway.asked


def test_a_run_that_ended_by_itself_is_not_cancelled() -> None:
    gateway = Sessions({"ses_1": ["done"]})
    gateway.status["done"] = "finished"
    with gateway.client() as client:
        assert client.end(gateway.sessions()[0]).runs == {"done": "finished"}
    assert gateway.asked == ["sessions/ses_1/close"]


def test_a_run_that_was_created_meanwhile_is_ended_too() -> None:
    gateway = Sessions({"ses_1": ["policy"]})
    gateway.late_run = "critic"
    with gateway.client() as client:
        verdict = client.end(gateway.sessions()[0])
    assert verdict.closed
    assert verdict.runs == {"policy": "cancelled", "critic": "cancelled"}


def test_a_session_without_runs_is_just_closed() -> None:
    gateway = Sessions({"ses_1": []})
    with gateway.client() as client:
        assert "no runs" in client.end(gateway.sessions()[0]).message


def test_what_goes_wrong_is_a_verdict_and_not_an_exception() -> None:
    session = Sessions({"ses_1": ["policy"]}).sessions()[0]
    for answer in (httpx.Response(401), httpx.Response(200, json={"strange": 1}), httpx.Response(503)):
        transport = httpx.MockTransport(lambda _, answer=answer: answer)
        with LifecycleClient(settings(), deadline_s=0.2, transport=transport) as client:
            verdict = client.end(session)
        assert not verdict.closed
        assert "COULD NOT CLOSE ses_1" in verdict.message


def test_no_request_may_outlast_the_deadline_by_much() -> None:
    timeouts: list[float] = []

    def handle(request: httpx.Request) -> httpx.Response:
        timeouts.append(request.extensions["timeout"]["read"])
        return httpx.Response(401)

    for deadline_s in (60.0, 3.0, 0.1):
        client = LifecycleClient(settings(), deadline_s=deadline_s, transport=httpx.MockTransport(handle))
        with client, pytest.raises(WhitneyError):
            client.open_sessions(("k", "v"))
    assert timeouts[0] == 10.0
    assert 1.0 <= timeouts[1] <= 3.0
    assert timeouts[2] == 1.0


def test_an_endpoint_that_does_not_answer_is_told_once_in_a_while_and_not_with_every_try() -> None:
    told: list[str] = []
    transport = httpx.MockTransport(lambda _: httpx.Response(503))
    client = LifecycleClient(settings(), deadline_s=1.0, on_progress=told.append, transport=transport)
    with client, pytest.raises(WhitneyError):
        client.open_sessions(("k", "v"))
    (line,) = told
    assert re.search(r"; trying again, \d+ s left$", line)


def test_what_is_done_and_how_long_it_is_waited_for_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whitney.lifecycle.TELL_EVERY_S", 0.0)
    gateway = Sessions({"ses_1": ["policy"]}, {"policy": 3})
    told: list[str] = []
    transport = httpx.MockTransport(gateway.handle)
    with LifecycleClient(settings(), deadline_s=20, on_progress=told.append, transport=transport) as client:
        assert client.end(gateway.sessions()[0]).closed
    assert told == [
        "cancelling run policy",
        "waiting for run policy: cancelling, 0 s",
        "waiting for run policy: cancelling, 0 s",
        "closing session ses_1",
    ]
