from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.states import (
    AwaitingRetry,
    Cancelled,
    Cancelling,
    Completed,
    Crashed,
    Failed,
    Late,
    Paused,
    Pending,
    Running,
    Scheduled,
    Suspended,
)

from tasks.reaping import Finding, Reaped, judge
from whitney.labels import ATTEMPT, FLOW_RUN, ROOT_ATTEMPT, ROOT_FLOW_RUN
from whitney.types import Session

OWNER = uuid4()
SILENCE_S = 300.0


def session(*, attempt: int = 1, age: float | None = 10.0, ttl: float | None = 1800.0) -> Session:
    labels = {FLOW_RUN: str(OWNER), ATTEMPT: str(attempt)}
    return Session(session_id="ses_1", status="open", labels=labels, heartbeat_age_s=age, ttl_s=ttl)


def judged(one: Session, state: State[object], run_count: int = 1) -> Finding:
    owner = FlowRun(id=OWNER, flow_id=uuid4(), state=state, run_count=run_count)
    return judge(one, {str(OWNER): owner}, silence_s=SILENCE_S)


ENDED: list[State[Any]] = [Completed(), Failed(), Crashed(), Cancelled()]
AHEAD: list[State[Any]] = [Scheduled(), AwaitingRetry(), Late(), Pending()]
AT_WORK: list[State[Any]] = [Running(), Paused(), Suspended(), Cancelling()]


@pytest.fixture
def state(request: pytest.FixtureRequest) -> State[object]:
    """A state that has just begun: they were made when the tests were collected, minutes ago in a whole suite."""
    made: State[object] = request.param
    return made.model_copy(update={"timestamp": datetime.now(UTC)})


@pytest.mark.parametrize("state", ENDED, ids=lambda state: state.name, indirect=True)
def test_a_session_whose_flow_run_has_ended_is_closed_though_it_beats(state: State[object]) -> None:
    finding = judged(session(), state)
    assert finding.doomed
    assert state.name is not None
    assert state.name in finding.why


@pytest.mark.parametrize("state", AHEAD, ids=lambda state: state.name, indirect=True)
def test_a_retry_that_is_pressed_on_a_run_at_work_does_not_end_it(state: State[object]) -> None:
    assert not judged(session(), state).doomed
    assert judged(session(age=SILENCE_S + 1), state).doomed
    assert judged(session(age=None), state).doomed, "nothing says that it lives"


@pytest.mark.parametrize("state", AT_WORK, ids=lambda state: state.name, indirect=True)
def test_a_session_whose_flow_run_is_at_work_is_spared_while_it_beats(state: State[object]) -> None:
    assert not judged(session(), state).doomed
    assert judged(session(age=SILENCE_S + 1), state).doomed, "silent, its process is gone"


@pytest.mark.parametrize("state", [*ENDED, *AHEAD, *AT_WORK], ids=lambda state: state.name, indirect=True)
def test_a_session_of_an_attempt_that_another_has_followed_is_closed(state: State[object]) -> None:
    assert judged(session(attempt=1), state, run_count=2).doomed


def judged_by_root(state: State[object], run_count: int = 1) -> Finding:
    """A session of a stage that Prefect takes to be running: killed, it could not say that it ended."""
    root = FlowRun(id=uuid4(), flow_id=uuid4(), state=state, run_count=run_count)
    of_stage = session()
    of_stage.labels.update({ROOT_FLOW_RUN: str(root.id), ROOT_ATTEMPT: "1"})
    stage: FlowRun = FlowRun(id=OWNER, flow_id=uuid4(), state=Running(), run_count=1)
    return judge(of_stage, {str(OWNER): stage, str(root.id): root}, silence_s=SILENCE_S)


@pytest.mark.parametrize("state", ENDED, ids=lambda state: state.name, indirect=True)
def test_the_session_of_a_stage_goes_with_its_pipeline(state: State[object]) -> None:
    finding = judged_by_root(state)
    assert finding.doomed
    assert finding.why == f"its top-level flow run is {state.name}"


@pytest.mark.parametrize("state", [*AHEAD, *AT_WORK], ids=lambda state: state.name, indirect=True)
def test_the_session_of_a_stage_is_spared_while_its_pipeline_is_in_the_same_attempt(state: State[object]) -> None:
    assert not judged_by_root(state).doomed
    assert "attempt 2 has begun" in judged_by_root(state, run_count=2).why


def test_a_cancelled_run_that_nobody_stops_is_closed_after_the_silence_it_is_given() -> None:
    for since, doomed in ((SILENCE_S - 10, False), (SILENCE_S + 10, True)):
        state: State[object] = State(
            type=StateType.CANCELLING, timestamp=datetime.now(UTC) - timedelta(seconds=since), name="Cancelling"
        )
        assert judged(session(), state).doomed is doomed


def test_a_flow_run_that_is_not_known_here_is_believed_while_it_beats() -> None:
    spared, silent = (judge(session(age=age), {}, silence_s=SILENCE_S) for age in (10.0, 301.0))
    assert (spared.doomed, silent.doomed) == (False, True)
    assert spared.why == "its flow run is not known here; last beat 10 s ago, of 300 s"
    assert silent.why == "it has been silent for 301 s, of 300 s"


def test_without_prefect_and_without_a_known_beat_nothing_is_closed() -> None:
    assert not judge(session(age=None), None, silence_s=SILENCE_S).doomed
    assert judge(session(age=301.0), None, silence_s=SILENCE_S).doomed
    assert judged(session(age=None), Failed()).doomed, "Prefect's word is enough"


@pytest.mark.parametrize(("ttl", "bound"), [(1800.0, 120.0), (None, 120.0), (0.0, 120.0), (9.0, 6.0), (1.5, 3.0)])
def test_silence_is_never_bounded_by_less_than_two_pauses_between_beats(ttl: float | None, bound: float) -> None:
    for age, doomed in ((bound - 0.1, False), (bound + 0.1, True)):
        finding = judge(session(age=age, ttl=ttl), None, silence_s=3.0)
        assert finding.doomed is doomed
        assert finding.why.endswith(f", of {bound:g} s"), "what counts is said, not what was asked for"


def test_the_report_is_one_table_whatever_a_label_holds() -> None:
    odd = Session(session_id="ses_2", status="open", labels={FLOW_RUN: "a|b\nc"}, heartbeat_age_s=1.0)
    rows = Reaped([judge(odd, {}, silence_s=SILENCE_S)], ["A note."]).markdown().splitlines()
    assert (
        rows[2].strip()
        == r"| ses_2 | a\|b c | spared | its flow run is not known here; last beat 1 s ago, of 300 s |  |"
    )
    assert rows[-1] == "A note."
