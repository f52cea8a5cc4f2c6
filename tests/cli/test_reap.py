from __future__ import annotations

import asyncio
import re
from uuid import uuid4

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import GlobalConcurrencyLimitCreate
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Crashed, Running

from cli.app import run_command
from flows.reap import reap
from gateway.launch import GatewayProcess
from whitney.client import WhitneyClient
from whitney.labels import FLOW_RUN, ROOT_FLOW_RUN, SLOTS
from whitney.settings import WhitneySettings
from whitney.types import CreateRun, Session


def left_open(gateway: GatewayProcess, flow_run: str, **labels: str) -> Session:
    """A session with an active run, as a process that was killed leaves it."""

    async def leave() -> Session:
        async with WhitneyClient(WhitneySettings(base_url=gateway.base_url, api_key=gateway.api_key)) as client:
            session = await client.create_session(create_key=flow_run, labels={FLOW_RUN: flow_run, **labels})
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
    capsys.readouterr()
    assert run_command(["reap", "--session", lost.session_id]) == 0, "twice does no harm"
    assert f"session {lost.session_id} is closed already (" in capsys.readouterr().out
    assert run_command(["reap", "--session", lost.session_id, "--dry-run"]) == 0
    assert "would be closed" not in capsys.readouterr().out
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


def test_reap_of_a_pipelines_flow_run_closes_what_its_stages_have_left_and_gives_back_their_slots(
    endpoint: GatewayProcess, prefect_server: str
) -> None:
    limit = f"sessions-{uuid4().hex[:8]}"

    async def take_slot() -> str:
        async with get_client() as api:
            await api.create_global_concurrency_limit(GlobalConcurrencyLimitCreate(name=limit, limit=1))
            answer = await api.increment_concurrency_slots_with_lease([limit], 1, "concurrency", lease_duration=600)
        return str(answer.json()["lease_id"])

    async def taken() -> int:
        async with get_client() as api:
            return (await api.read_global_concurrency_limit_by_name(limit)).active_slots

    stage = left_open(endpoint, "reap-stage", **{ROOT_FLOW_RUN: "reap-pipeline", SLOTS: asyncio.run(take_slot())})
    assert asyncio.run(taken()) == 1
    assert run_command(["reap", "--flow-run", "reap-pipeline"]) == 0
    assert as_it_is_now(endpoint, stage.session_id)[0] == "closed"
    assert asyncio.run(taken()) == 0


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


def flow_runs_of_both_kinds() -> tuple[str, str]:
    """One that has crashed, one that is running; their ids."""

    async def create() -> tuple[str, str]:
        async with get_client() as api:
            crashed, running = [await api.create_flow_run(reap, state=state) for state in (Crashed(), Running())]
            return str(crashed.id), str(running.id)

    return asyncio.run(create())


def row_of(session: Session, printed: str) -> list[str]:
    """The columns of a session's line."""
    (row,) = [line for line in printed.splitlines() if session.session_id in line]
    return [cell.strip() for cell in row.split("  ") if cell.strip()]


def test_reap_of_everything_closes_what_has_ended_and_shows_why_it_spares_the_rest(
    endpoint: GatewayProcess, prefect_server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    crashed, running = flow_runs_of_both_kinds()
    lost, busy, foreign = (left_open(endpoint, owner) for owner in (crashed, running, "reap-foreign"))
    assert run_command(["reap", "--dry-run"]) == 0
    told = capsys.readouterr().out
    assert row_of(lost, told) == ["would be closed", lost.session_id, crashed, "its flow run is Crashed"]
    assert as_it_is_now(endpoint, lost.session_id) == ("open", ["active"])
    assert "less than two pauses" not in told
    assert run_command(["reap", "--silence-s", "9"]) == 0
    told = capsys.readouterr().out
    assert "A silence of 9 s is less than two pauses between beats: sessions get up to 120 s." in told
    assert row_of(lost, told) == ["closed", lost.session_id, crashed, "its flow run is Crashed"]
    *spared, why = row_of(busy, told)
    assert spared == ["spared", busy.session_id, running]
    assert re.fullmatch(r"its flow run is Running; last beat \d+ s ago, of 120 s", why)
    assert re.fullmatch(r"its flow run is not known here; last beat \d+ s ago, of 120 s", row_of(foreign, told)[3])
    assert as_it_is_now(endpoint, lost.session_id) == ("closed", ["cancelled"])
    assert as_it_is_now(endpoint, busy.session_id) == ("open", ["active"])
    for owner in (running, "reap-foreign"):
        assert run_command(["reap", "--flow-run", owner]) == 0


@pytest.mark.parametrize("url", [None, "http://127.0.0.1:9/api"])
def test_reap_without_a_prefect_that_answers_judges_by_silence_alone_and_says_so(
    endpoint: GatewayProcess, url: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    session = left_open(endpoint, str(uuid4()))
    with temporary_settings({PREFECT_API_URL: url}):
        assert run_command(["reap"]) == 0
    told = capsys.readouterr().out
    assert "judged by their silence alone" in told
    assert row_of(session, told)[0] == "spared"
    assert run_command(["reap", "--session", session.session_id, "--dry-run"]) == 0
    assert f"session {session.session_id} (open; run " in capsys.readouterr().out
    assert as_it_is_now(endpoint, session.session_id)[0] == "open"
    assert run_command(["reap", "--session", session.session_id]) == 0


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--session", "ses_1", "--flow-run", "f"], "name one thing to close"),
        (["--session", "ses_1", "--silence-s", "9"], "--silence-s is for a reap of everything"),
        (["--silence-s", "0"], "--silence-s 0: must be above 0, in seconds"),
        (["--deadline-s", "nan"], "--deadline-s nan: must be above 0, in seconds"),
    ],
)
def test_reap_says_what_is_wrong_with_its_flags(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["reap", *arguments]) == 2
    assert complaint in capsys.readouterr().err
