"""What of a flow run Prefect has on record as completed: its children, and what each returned."""

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
from prefect.client.schemas.objects import FlowRun, StateType

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
    wanted = FlowRunFilter(
        parent_flow_run_id=FlowRunFilterParentFlowRunId(any_=[UUID(flow_run_id)]),
        state=FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.COMPLETED])),
    )
    runs: list[FlowRun] = []
    async with get_client() as api:
        while page := await api.read_flow_runs(flow_run_filter=wanted, limit=PAGE, offset=len(runs)):
            runs += page
    return [Child(run.id, await _outcome(run)) for run in runs if run.state is not None and run.state.data is not None]


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
