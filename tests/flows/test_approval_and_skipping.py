"""What is decided before a run opens a session: a person is asked, or there is nothing to do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import psutil
import pytest
from flow_probes import ended, ledger, retry, sessions_of
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.exceptions import CancelledRun, Pause
from prefect.states import Pending
from served import FaultyGateway, Served, read, serving, state_of, until
from tiny_configs import grpo_config

import flows
from flows.counts.operations import planned_operations
from flows.durable.unchanged import FINGERPRINT
from flows.person import DECISION, NotAnsweredError
from gateway.launch import GatewayProcess
from tasks.events import Event, listening
from whitney.labels import ATTEMPT

ALWAYS = {"above_operations": 0}
REFUSED_SAVE = {"action": "status", "status": 400, "route": "run_operation", "kind": "save_state"}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyGateway]:
    with ExitStack() as stack:
        yield FaultyGateway(tmp_path_factory.mktemp("asked"), stack)


@pytest.fixture(scope="module")
def served(prefect_server: str, gateway: FaultyGateway, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    with serving("grpo", api_url=prefect_server, folder=folder, environment=gateway.environment) as started:
        yield started


@pytest.fixture
async def deployment(local: GatewayProcess) -> UUID:
    """A deployment that no runner polls for: the tests run its flow runs in this process."""
    made = await flows.grpo.ato_deployment(f"by-hand-{uuid4().hex[:8]}")
    return await made.aapply()


async def run_of(deployment_id: UUID, config: Any) -> FlowRun:
    """A flow run of the deployment, as a worker has it in hand."""
    async with get_client() as api:
        return await api.create_flow_run_from_deployment(
            deployment_id, parameters={"config": config.model_dump(mode="json")}, state=Pending()
        )


def short(folder: Path, **fields: Any) -> Any:
    return grpo_config(folder, **{"cycles": 1, "evaluation": {"enabled": False}, **fields})


async def asked(flow_run_id: UUID) -> FlowRun | None:
    run = await read(flow_run_id)
    keyset = run.state.state_details.run_input_keyset if run.state and run.state.is_paused() else None
    return run if keyset and await form_part(flow_run_id, keyset["description"]) else None


async def form_part(flow_run_id: UUID, key: str) -> str | None:
    """What the Resume form shows, as the UI reads it."""
    async with get_client() as api:
        try:
            return await api.read_flow_run_input(flow_run_id, key)
        except httpx.HTTPStatusError:
            return None


async def told(flow_run_id: UUID) -> list[Any]:
    """What stands among the artifacts of a run of what it asks."""
    wanted = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[flow_run_id]))
    async with get_client() as api:
        found = await api.read_artifacts(artifact_filter=wanted)
    return [one.data for one in found if one.key and one.key.startswith("question-approval-")]


async def answer(flow_run_id: UUID, *, go_on: bool) -> None:
    """The Resume button, with the form filled in."""
    async with get_client() as api:
        result = await api.resume_flow_run(flow_run_id, {"go_on": go_on})
    assert result.status.value == "ACCEPT", result.details


async def state_names(flow_run_id: UUID) -> list[str | None]:
    async with get_client() as api:
        return [state.name for state in await api.read_flow_run_states(flow_run_id)]


def processes_of(served: Served) -> list[psutil.Process]:
    """Those of the runner's flow runs that have not ended."""
    return [one for one in psutil.Process(served.runner.pid).children(recursive=True) if is_flow_run(one)]


def is_flow_run(process: psutil.Process) -> bool:
    try:
        return any("prefect.engine" in word or "spawn_main" in word for word in process.cmdline())
    except psutil.NoSuchProcess:  # or a zombie: it has ended, and its parent has not looked yet
        return False


async def test_a_large_run_of_a_deployment_is_suspended_with_its_plan_and_asks_once_whatever_is_retried(
    served: Served, gateway: FaultyGateway, tmp_path: Path
) -> None:
    gateway.fail(REFUSED_SAVE)
    config = short(tmp_path, name="asked", approval=ALWAYS, evaluation={"max_prompts": 4})
    planned = planned_operations("grpo", config, 4).total()
    flow_run_id = await served.press_run("grpo", config)
    run = await until(lambda: asked(flow_run_id), "the run to ask", served.log)

    assert run.state is not None
    assert run.state.name == "Suspended"
    keyset = run.state.state_details.run_input_keyset
    assert keyset is not None
    question = await form_part(flow_run_id, keyset["description"])
    assert question is not None
    assert f"**{planned} Whitney operations are planned at most**, more than approval.above_operations = 0" in question
    assert "- **model**: tiny on local, LoRA rank 8" in question
    assert "- **cycles**: 1 cycle of 4 prompts, 4 completions each" in question
    assert "- **measurements**: 2, of 4 held-out examples" in question
    assert "1 optim_step" in question
    assert await gateway.sessions(flow_run_id) == []
    assert list(tmp_path.iterdir()) == [], "not even a run folder"

    async def no_process() -> bool | None:
        return None if processes_of(served) else True

    await until(no_process, "the process to end: a suspended run has none", served.log)

    await answer(flow_run_id, go_on=True)
    assert state_of(await served.ended(flow_run_id)) == StateType.FAILED, "by the gateway's fault, after it was asked"
    gateway.fail()
    await served.press_retry(flow_run_id)
    run = await served.ended(flow_run_id, attempt=2)
    assert state_of(run) == StateType.COMPLETED
    assert (await state_names(flow_run_id)).count("Suspended") == 1
    assert await told(flow_run_id) == [json.loads(question)], "once, by the process that was suspended"
    assert (
        f"waits for a person: {planned} operations are planned, more than approval.above_oper" in served.log.read_text()
    )
    (said,) = [label for label in run.labels if label.startswith(DECISION)]
    assert said.startswith(f"{DECISION}approval-{planned}-")
    assert run.labels[said] == "go on"
    assert len(await gateway.all_closed(flow_run_id)) == 2


async def test_a_run_that_is_declined_is_cancelled_with_nothing_allocated_and_asks_again_when_it_is_retried(
    deployment: UUID, tmp_path: Path
) -> None:
    run = await run_of(deployment, short(tmp_path, approval=ALWAYS))
    with pytest.raises(Pause):
        await ended(flows.grpo, run)
    assert await asked(run.id)
    await answer(run.id, go_on=False)
    state = await ended(flows.grpo, await read(run.id))
    assert (state.type, state.name) == (StateType.CANCELLED, "Cancelled")
    assert state.message is not None
    assert state.message.startswith("declined by a person (approval-")
    with pytest.raises(Pause):
        await retry(flows.grpo, run.id)
    assert await asked(run.id)
    assert await sessions_of(run.id) == []
    assert list(tmp_path.iterdir()) == []


async def test_a_run_without_a_deployment_waits_in_its_process_and_is_then_another_attempt(
    local: GatewayProcess, tmp_path: Path
) -> None:
    heard: list[Event] = []
    with listening(heard.append):
        training = asyncio.create_task(flows.grpo(short(tmp_path, approval=ALWAYS)))
        flow_run_id = await paused_in_process(heard)
        await answer(flow_run_id, go_on=True)
        summary = await training
    kinds = [event.kind for event in heard]
    assert kinds.index("paused") < kinds.index("resumed") < kinds.index("session_requested")
    (session,) = await sessions_of(flow_run_id)
    run = await read(flow_run_id)
    assert int(session.labels[ATTEMPT]) == summary["attempt"] == run.run_count == 2, "what the reaper compares"
    assert ledger(local, flow_run_id, attempt=2)["policy"]["sample"] == 4


async def paused_in_process(heard: list[Event]) -> UUID:
    async def look() -> UUID | None:
        ids = [UUID(event.facts["flow_run_id"]) for event in heard if event.kind == "paused"]
        return ids[-1] if ids and await asked(ids[-1]) else None

    return await until(look, "the run to ask")


async def test_in_its_process_too_a_person_may_decline_or_say_nothing(local: GatewayProcess, tmp_path: Path) -> None:
    heard: list[Event] = []
    with listening(heard.append):
        declined = asyncio.create_task(flows.grpo(short(tmp_path, approval=ALWAYS)))
        await answer(await paused_in_process(heard), go_on=False)
        with pytest.raises(CancelledRun, match="declined by a person"):
            await declined
        unanswered = short(tmp_path, approval={**ALWAYS, "timeout_hours": 1 / 3600})
        with pytest.raises(NotAnsweredError, match=r"nobody has answered within 0\.000278 hours \(approval-"):
            await flows.grpo(unanswered)
    assert "session_requested" not in [event.kind for event in heard]
    assert list(tmp_path.iterdir()) == []


async def test_a_run_as_large_as_allowed_asks_nobody(local: GatewayProcess, tmp_path: Path) -> None:
    allowed = planned_operations("grpo", short(tmp_path), 0).total()
    summary = await flows.grpo(short(tmp_path, approval={"above_operations": allowed}))
    assert summary["operations"]["sample"] == 4


async def test_a_deployments_run_with_nothing_new_is_skipped_and_compared_with_what_was_trained_last(
    deployment: UUID, tmp_path: Path
) -> None:
    async def run_with(**fields: Any) -> tuple[UUID, State[Any]]:
        run = await run_of(deployment, short(tmp_path, skip_unchanged=True, **fields))
        return run.id, await ended(flows.grpo, run)

    first, state = await run_with(name="first")
    assert state.name == "Completed"
    # Neither a name nor how many states are kept is what is trained; and the second is not compared with a skipped one.
    for name, keep_states in (("again", 3), ("once-more", 4)):
        skipped, state = await run_with(name=name, keep_states=keep_states)
        assert (state.type, state.name) == (StateType.COMPLETED, "Skipped")
        assert state.message is not None
        assert state.message.startswith(f"data, configuration and template are those of first ({first}), which ")
        assert FINGERPRINT not in (await read(skipped)).labels
        assert await sessions_of(skipped) == []
        assert not (tmp_path / name).exists()
    assert (await run_with(name="changed", seed=1))[1].name == "Completed"
    assert (await run_with(name="back"))[1].name == "Completed", "the last one has trained something else"
    # Whoever presses Retry on a skipped run wants it trained.
    assert (await retry(flows.grpo, skipped)).name == "Completed"


async def test_a_run_without_a_deployment_says_that_skipping_has_no_effect(
    local: GatewayProcess, tmp_path: Path
) -> None:
    heard: list[Event] = []
    with listening(heard.append):
        summary = await flows.grpo(short(tmp_path, skip_unchanged=True))
    assert summary["cycles"] == 1
    (warning,) = [event.facts["message"] for event in heard if event.kind == "warning"]
    assert warning == "skip_unchanged has no effect: only runs of a deployment are compared with one another"
