"""Cancel, pressed on the page of a flow run that no runner looks after: a stage, a block, a run of `whitney run`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from flow_probes import POLICY, descendants, ended, ledger, page_of, retry, sessions_of
from prefect import runtime
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import StateType
from prefect.states import Cancelling, Pending
from served import read, state_of
from tiny_pipelines import pipeline_config

import flows
from flows.cancelling import unheeded
from flows.lifecycle import inner_flow
from gateway.launch import GatewayProcess
from whitney.client import WhitneyClient

# Steps whose loss is measured, and nothing sampled.
SHARED: dict[str, Any] = {"evaluation": {"samples": 1, "max_prompts": 1}, "sampling": {"max_tokens": 1}}
STAGES = [
    {"name": name, "algorithm": "sft", "config": {"batch_size": 2, "cycles": n}} for name, n in (("a", 1), ("b", 2))
]


class Held:
    """From the nth on, answers to operations of a kind do not come: they are executed, and waited for."""

    def __init__(self, patch: pytest.MonkeyPatch, kind: str, nth: int) -> None:
        self._patch, self._real, self._seen = patch, WhitneyClient.await_operation, 0
        self.waited_for, self._let_go = asyncio.Event(), asyncio.Event()

        async def holding(client: WhitneyClient, run_id: str, seq_id: int) -> Any:
            operation = await self._real(client, run_id, seq_id)
            self._seen += operation.kind == kind
            if operation.kind == kind and self._seen >= nth:
                self.waited_for.set()
                await self._let_go.wait()
            return operation

        patch.setattr(WhitneyClient, "await_operation", holding)

    def go_on(self) -> None:
        self._patch.setattr(WhitneyClient, "await_operation", self._real)
        self._let_go.set()


async def press_cancel(flow_run_id: UUID, page: str) -> None:
    """On the page of the run of that name, below the flow run or itself, that is at work."""
    tree = [await read(flow_run_id), *await descendants(flow_run_id)]
    (pressed,) = (run for run in tree if run.name == page and state_of(run) == StateType.RUNNING)
    async with get_client() as api:
        await api.set_flow_run_state(pressed.id, Cancelling())


async def run_of(config: Any) -> Any:
    """A pipeline's flow run, to be begun."""
    async with get_client() as api:
        parameters = {"config": config.model_dump(mode="json")}
        return await api.create_flow_run(flows.pipeline, parameters=parameters, state=Pending())


async def test_cancel_on_any_page_of_a_pipeline_closes_its_session_and_a_retry_goes_on_from_there(
    local: GatewayProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.cancelling.LOOK_EVERY_S", 0.1)
    flow_run = await run_of(pipeline_config(tmp_path, *STAGES, shared=SHARED))
    held = Held(monkeypatch, "save_state", 3)  # one of a, the second of b
    for page, begin in {
        "chain": lambda: ended(flows.pipeline, flow_run),
        "2-b": lambda: retry(flows.pipeline, flow_run.id),
        "cycle 2": lambda: retry(flows.pipeline, flow_run.id),
    }.items():
        held.waited_for.clear()
        attempt = asyncio.create_task(begin())
        await held.waited_for.wait()
        await press_cancel(flow_run.id, page)
        state = await attempt
        assert (state.type, state.message) == (StateType.CANCELLED, f"{page} was cancelled on its page")
        (b,) = (run for run in await descendants(flow_run.id) if run.name == "2-b")
        assert state_of(b) == (StateType.CRASHED if page == "chain" else StateType.CANCELLED)
        assert {one.status for one in await sessions_of(b.id)} == {"closed"}
        told = "interrupted**: by Cancel, Ctrl-C or SIGTERM" if page == "chain" else f"cancelled**: {state.message}"
        assert f"| 2 b | sft | **{told} |" in await page_of(flow_run.id)

    # A process that is killed before it hears leaves them so.
    for run in (b, *(run for run in await descendants(b.id) if run.name == "cycle 2")):
        async with get_client() as api:
            await api.set_flow_run_state(run.id, Cancelling(), force=True)
    held.go_on()
    assert (await retry(flows.pipeline, flow_run.id)).type == StateType.COMPLETED
    saved = [ledger(local, b.id, number)[POLICY]["save_state"] for number in (1, 2, 3, 4)]
    assert saved == [2, 1, 1, 1], "the block that was cancelled is done again, and none before it"
    (a,) = (run for run in await descendants(flow_run.id) if run.name == "1-a")
    assert len(await sessions_of(a.id)) == 1


@pytest.mark.usefixtures("prefect_server")
async def test_what_ends_while_a_session_is_closed_is_looked_after_no_more_and_the_others_still_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("flows.cancelling.LOOK_EVERY_S", 0.1)
    begun, ending = asyncio.Event(), asyncio.Event()

    @inner_flow("below", "below")
    async def below() -> str:
        begun.set()
        await ending.wait()
        return str(runtime.flow_run.id)

    @inner_flow("above", "above")
    async def above() -> None:
        running = asyncio.create_task(below())
        await begun.wait()
        with unheeded():
            ending.set()
            ended_id = await running
        async with get_client() as api:
            await api.set_flow_run_state(UUID(ended_id), Cancelling(), force=True)
            await asyncio.sleep(0.5)  # some looks
            await api.set_flow_run_state(UUID(runtime.flow_run.id), Cancelling())
        await asyncio.Event().wait()

    async with asyncio.timeout(20):
        state = await above(return_state=True)
    assert (state.type, state.message) == (StateType.CANCELLED, "above was cancelled on its page")


async def test_cancel_that_is_pressed_as_a_block_ends_is_heard_before_it_has_ended(
    local: GatewayProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.cancelling.LOOK_EVERY_S", 1000.0)
    flow_run = await run_of(pipeline_config(tmp_path, STAGES[1], shared=SHARED))
    held = Held(monkeypatch, "save_state", 1)
    attempt = asyncio.create_task(ended(flows.pipeline, flow_run))
    await held.waited_for.wait()
    await press_cancel(flow_run.id, "cycle 1")
    held.go_on()
    state = await attempt
    assert (state.type, state.message) == (StateType.CANCELLED, "cycle 1 was cancelled on its page")
    assert (await retry(flows.pipeline, flow_run.id)).type == StateType.COMPLETED
