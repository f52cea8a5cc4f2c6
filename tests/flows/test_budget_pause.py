"""A person is asked for more budget, with nothing held; after a yes the run ends as one that had it from the start."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest
from flow_probes import Taught, ended, sessions_of
from prefect.client.orchestration import get_client
from prefect.exceptions import Pause
from prefect.states import Pending
from served import read, until
from tiny_configs import tiny_config

import flows
import flows.person
from flows.config import BudgetConfig
from flows.durable import stopwatch
from flows.durable.budget.labels import Asked, note_asked, note_raised, raised
from flows.durable.budget.labels import asked as question_of
from flows.durable.budget.pause import read_answer
from gateway.launch import GatewayProcess
from tasks.events import Event, listening

SLOWLY: dict[str, Any] = {"optimizer": {"learning_rate": 2e-3}}
STOPPED_IN_CYCLE_2 = {"max_tokens": 400, "on_exceed": "pause"}


@pytest.fixture
async def config(local: GatewayProcess, taught: Taught, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Two blocks, of which the second does not come to its end."""
    monkeypatch.setattr(flows.person, "LOOK_EVERY_S", 0.1)
    state_id = (await taught("local"))["state_id"]
    return tiny_config("grpo", tmp_path, state_id=state_id, save_every=1, budget=STOPPED_IN_CYCLE_2, **SLOWLY)


async def never_stopped(config: Any) -> dict[str, Any]:
    free = type(config).model_validate({**config.model_dump(mode="json"), "budget": {}, "name": "never-stopped"})
    return await flows.grpo(free)


async def asked(heard: list[Event], training: asyncio.Task[Any]) -> UUID:
    """The flow run that waits for an answer."""

    async def look() -> UUID | None:
        assert not training.done(), "nobody is asked"
        ids = [UUID(event.facts["flow_run_id"]) for event in heard if event.kind == "paused"]
        state = (await read(ids[-1])).state if ids else None
        return ids[-1] if state is not None and state.is_paused() else None

    return await until(look, "the run to ask")


async def answer(flow_run_id: UUID, **form: Any) -> None:
    async def press() -> bool | None:
        async with get_client() as api:
            return (await api.resume_flow_run(flow_run_id, form)).status.value == "ACCEPT" or None

    await until(press, "the answer to be taken")  # the form is there a moment after the state


async def refusal(flow_run_id: UUID, **form: Any) -> str:
    """Why an answer is not taken; the question stays."""

    async def press() -> str | None:
        async with get_client() as api:
            said = await api.resume_flow_run(flow_run_id, form)
        assert said.status.value == "REJECT"
        reason = str(getattr(said.details, "reason", ""))
        return None if reason == "Run input schema not found." else reason

    return await until(press, "the answer to be refused")


async def test_with_a_yes_the_stopped_block_begins_anew_and_the_run_ends_as_one_that_never_stopped(
    config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = {"project": f"project-{uuid4().hex[:8]}", "max_operations_per_month": 500, "max_minutes": 59}
    budget = {**config.model_dump(mode="json")["budget"], **others}
    limited = type(config).model_validate({**config.model_dump(mode="json"), "budget": budget})
    heard: list[Event] = []
    with listening(heard.append):
        training = asyncio.create_task(flows.grpo(limited))
        block = await asked(heard, training)
        question = next(event.facts["question"] for event in heard if event.kind == "paused")
        opened = [event.facts["session_id"] for event in heard if event.kind == "session_created"]
        closed = [event.facts["session_id"] for event in heard if event.kind == "session_closed"]
        assert opened == closed, "nothing is held while a person thinks"
        an_hour_later = SimpleNamespace(monotonic=lambda: time.monotonic() + 3600)
        monkeypatch.setattr(stopwatch, "time", an_hour_later)
        assert "-5 is less than the minimum of 0" in await refusal(block, go_on=True, more=-5)
        await answer(block, go_on=True)
        summary = await training
    assert "**budget.max_tokens is reached.**" in question
    assert "1 of 2 cycles is trained and saved" in question
    assert [event.kind for event in heard].count("paused") == 1, "what is offered suffices"
    assert (summary["stopped"], summary["cycles"], summary["open_sessions"]) == (None, 2, 0)
    used = summary["budget"]["used"]
    assert used["budget.max_tokens"]["used"] <= used["budget.max_tokens"]["limit"]
    assert used["budget.max_operations_per_month"]["limit"] == 500, "another limit of the same name's"
    assert used["budget.max_minutes"]["used"] < 1, "a person's hour is not at work"
    assert summary["adapter_sha256"] == (await never_stopped(config))["adapter_sha256"]


async def test_with_a_no_the_run_ends_with_its_last_saved_block(config: Any) -> None:
    heard: list[Event] = []
    with listening(heard.append):
        training = asyncio.create_task(flows.grpo(config))
        await answer(await asked(heard, training), go_on=False)
        summary = await training
    assert summary["stopped"].startswith("budget.max_tokens = 400: ")
    assert (summary["cycles"], summary["open_sessions"]) == (1, 0)


async def test_a_run_of_a_deployment_is_suspended_and_goes_on_in_another_process_with_what_was_said(
    config: Any,
) -> None:
    deployment = await (await flows.grpo.ato_deployment(f"by-hand-{uuid4().hex[:8]}")).aapply()
    async with get_client() as api:
        run = await api.create_flow_run_from_deployment(
            deployment, parameters={"config": config.model_dump(mode="json")}, state=Pending()
        )
    with pytest.raises(Pause):
        await ended(flows.grpo, run)
    assert [session.status for session in await sessions_of(run.id)] == ["closed"]
    await answer(run.id, go_on=True, more=0)
    state = await ended(flows.grpo, await read(run.id))
    summary = await state.result()
    assert (summary["stopped"], summary["cycles"], summary["attempt"]) == (None, 2, 1)
    assert summary["budget"]["used"] == {}, "the limit is lifted"
    assert summary["adapter_sha256"] == (await never_stopped(config))["adapter_sha256"]


@pytest.fixture
async def flow_run_id(prefect_server: Any) -> str:
    async with get_client() as api:
        return str((await api.create_flow_run(flows.grpo, parameters={}, state=Pending())).id)


async def test_a_limit_that_was_raised_is_so_as_long_as_the_configuration_has_it(flow_run_id: str) -> None:
    async def by(**configured: float) -> dict[str, float]:
        return dict(await raised(flow_run_id, configured))

    await note_raised(flow_run_id, "max_operations", 8, 0)
    assert await by(max_operations=8) == {"max_operations": 0.0}, "it is lifted"
    assert await by(max_operations=9, max_tokens=8) == {}
    for more in (5, 6):
        await note_raised(flow_run_id, "max_operations", 20, more)
    assert await by(max_operations=20) == {"max_operations": 11.0}


@pytest.mark.parametrize(
    "table",
    [{"max_operations": 500, "on_exceed": "pause"}, {"max_operations": 8}, {}],
    ids=["another-limit", "no-question", "no-limit"],
)
async def test_a_question_whose_limit_has_been_changed_is_settled_by_that(
    table: dict[str, Any], flow_run_id: str
) -> None:
    await note_asked(flow_run_id, Asked("budget.max_operations", 8, 5.0, 3600, "More?"))
    assert await read_answer(flow_run_id, BudgetConfig.model_validate(table))
    assert await question_of(flow_run_id) is None
