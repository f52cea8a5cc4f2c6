from __future__ import annotations

import asyncio

import pytest

from cli.app import run_command
from gateway.launch import GatewayProcess
from whitney.client import WhitneyClient
from whitney.labels import FLOW_RUN
from whitney.settings import WhitneySettings
from whitney.types import CreateRun, Session


def left_open(gateway: GatewayProcess, flow_run: str) -> Session:
    """A session with an active run, as a process that was killed leaves it."""

    async def leave() -> Session:
        async with WhitneyClient(WhitneySettings(base_url=gateway.base_url, api_key=gateway.api_key)) as client:
            session = await client.create_session(create_key=flow_run, labels={FLOW_RUN: flow_run})
            request = CreateRun(create_key=flow_run, provider="local", model="tiny")
            await client.create_run(session.session_id, request)
            return session

    return asyncio.run(leave())


def as_it_is_now(gateway: GatewayProcess, session_id: str) -> tuple[str, list[str]]:
    async def ask() -> tuple[str, list[str]]:
        async with WhitneyClient(WhitneySettings(base_url=gateway.base_url, api_key=gateway.api_key)) as client:
            session = await client.get_session(session_id)
            return session.status, [run.status for run in session.runs]

    return asyncio.run(ask())


def test_reap_closes_the_session_that_it_is_given_and_no_other(
    endpoint: GatewayProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    lost, other = left_open(endpoint, "reap-lost"), left_open(endpoint, "reap-other")
    assert run_command(["reap", "--session", lost.session_id]) == 0
    assert f"session {lost.session_id} closed" in capsys.readouterr().out
    assert as_it_is_now(endpoint, lost.session_id) == ("closed", ["cancelled"])
    assert as_it_is_now(endpoint, other.session_id) == ("open", ["active"])
    assert run_command(["reap", "--session", lost.session_id]) == 0, "twice does no harm"
    assert run_command(["reap", "--session", other.session_id]) == 0


def test_reap_closes_what_a_flow_run_has_left_and_says_when_there_is_nothing(
    endpoint: GatewayProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    session = left_open(endpoint, "reap-flow-run")
    assert run_command(["reap", "--flow-run", "reap-flow-run"]) == 0
    assert as_it_is_now(endpoint, session.session_id)[0] == "closed"
    capsys.readouterr()
    assert run_command(["reap", "--flow-run", "reap-flow-run"]) == 0
    assert "flow run reap-flow-run has no open session" in capsys.readouterr().out


def test_reap_of_a_session_that_is_not_there_is_a_mistake(
    endpoint: GatewayProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["reap", "--session", "ses_nobody"]) == 2
    assert f"--session ses_nobody: {endpoint.base_url} has no session of that id" in capsys.readouterr().err


def test_reap_that_reaches_nobody_has_failed_for_something_may_be_open(
    endpoint: GatewayProcess, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WHITNEY_BASE_URL", "http://127.0.0.1:9")
    assert run_command(["reap", "--session", "ses_1", "--deadline-s", "1"]) == 1
    assert "nothing could be closed: " in capsys.readouterr().err
