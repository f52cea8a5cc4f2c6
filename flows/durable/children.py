"""What of a flow run Prefect has on record: the children that have completed, and one that was left Cancelling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterParentFlowRunId,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.states import AwaitingRetry, Crashed

from flows.config import ConfigError
from tasks.prefect_server import PAGE


@dataclass(frozen=True, slots=True)
class Child:
    """A completed child of the flow run, and what it returned."""

    flow_run_id: UUID
    outcome: Any


async def completed_children(flow_run_id: str) -> list[Child]:
    """The children whose outcomes a Retry adopts.

    Raises:
        ConfigError: an outcome cannot be read here.
    """
    runs = await _children(flow_run_id, StateType.COMPLETED)
    return [Child(run.id, await _outcome(run)) for run in runs if run.state is not None and run.state.data is not None]


async def end_cancelling_children(flow_run_id: str) -> None:
    """Let a Retry train again what was told to cancel on its page and killed before it heard.

    Prefect would take up that very child, which can only end from there: no Retry would ever come past it.
    """
    children = await _children(flow_run_id, StateType.CANCELLING)
    async with get_client() as api:
        for child in children:
            crashed: State[None] = Crashed(message="its process was gone before it could be cancelled")
            await api.set_flow_run_state(child.id, crashed, force=True)


async def reopen_child(flow_run_id: str, message: str) -> None:
    """Let a run that is suspended take up the child again that ended Cancelled with this message.

    It goes on as the same attempt, in which Prefect would hand out that end once more: `flows.reopening` says why this
    state is the way.
    """
    stopped = [
        one for one in await _children(flow_run_id, StateType.CANCELLED) if one.state and one.state.message == message
    ]
    async with get_client() as api:
        for child in stopped:
            await api.set_flow_run_state(child.id, AwaitingRetry(message="stopped by the budget"), force=True)


async def _children(flow_run_id: str, state: StateType) -> list[FlowRun]:
    wanted = FlowRunFilter(
        parent_flow_run_id=FlowRunFilterParentFlowRunId(any_=[UUID(flow_run_id)]),
        state=FlowRunFilterState(type=FlowRunFilterStateType(any_=[state])),
    )
    found: list[FlowRun] = []
    async with get_client() as api:
        while page := await api.read_flow_runs(flow_run_filter=wanted, limit=PAGE, offset=len(found)):
            found += page
    return found


async def _outcome(run: FlowRun) -> Any:
    assert run.state is not None
    try:
        return await run.state.aresult(retry_result_failure=False)
    except Exception as error:
        raise ConfigError(
            f"{run.name} is finished, and its result cannot be read here ({type(error).__name__}: {error}): press "
            "Retry where the run began, or give its workers a result storage they share "
            "(PREFECT_DEFAULT_RESULT_STORAGE_BLOCK)"
        ) from error
