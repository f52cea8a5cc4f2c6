"""How a Retry of a flow that calls training flows goes on with the one that failed.

What Prefect 3.9.1 does by itself, when a flow run is retried and calls a subflow again (`load_subflow_run`): a child
that completed is adopted, one that is still said to run (its process was killed) is run again as the same flow run. But
a child that failed, crashed or was cancelled gets a *new* flow run — to which the blocks that the old one has finished
mean nothing: they would be trained, and billed, a second time.

So before anything is called, such children are set to AwaitingRetry, as the Retry button of the UI would set them.
The server copies that to the task run that stands for the child in its parent, which is then in no final state: Prefect
runs the same flow run again, its run count goes up by one, and its finished blocks are adopted.
"""

from __future__ import annotations

from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterParentFlowRunId
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.sorting import FlowRunSort
from prefect.logging import get_run_logger
from prefect.runtime import flow_run
from prefect.states import AwaitingRetry

from tasks.prefect_server import PAGE
from whitney.labels import HAS_STAGES, PROCESS, STOPPED_WITH_PIPELINE


async def reopen_failed_stages() -> None:
    """Set the current flow run's failed children to AwaitingRetry: those that have begun a training, or stages of one.

    The flow run itself is marked as one that has stages, for the flow that may have called it.
    """
    parent = UUID(flow_run.id)
    async with get_client() as api:
        await api.update_flow_run_labels(parent, {HAS_STAGES: "yes"})
        for stage in newest(await _children(parent)):
            if _is_to_go_on(stage):
                why = f"goes on with {flow_run.name}"
                await api.set_flow_run_state(stage.id, AwaitingRetry(message=why), force=True)
                get_run_logger().info("%s goes on, after attempt %d", stage.name, stage.run_count)


def newest(children: list[FlowRun]) -> list[FlowRun]:
    """Of the children in the order of their start the last for each call: the one that Prefect would take up again."""
    return list({child.parent_task_run_id: child for child in children}.values())


def _is_to_go_on(child: FlowRun) -> bool:
    """Whether it has ended badly, with work behind it. One that was refused at the start has nothing to be kept.

    One that was told to cancel on its page, and killed before it heard (`flows.cancelling`), is Cancelling for ever: no
    runner looks after a subflow. One that the pipeline's budget has stopped has Completed, and is not finished.
    """
    state = child.state
    ended = state is not None and (state.is_cancelling() or (state.is_final() and not state.is_completed()))
    if child.labels.get(STOPPED_WITH_PIPELINE) == "yes":
        return True
    return ended and (PROCESS in child.labels or HAS_STAGES in child.labels)


async def _children(parent: UUID) -> list[FlowRun]:
    wanted = FlowRunFilter(parent_flow_run_id=FlowRunFilterParentFlowRunId(any_=[parent]))
    found: list[FlowRun] = []
    async with get_client() as api:
        while page := await api.read_flow_runs(
            flow_run_filter=wanted, sort=FlowRunSort.EXPECTED_START_TIME_ASC, limit=PAGE, offset=len(found)
        ):
            found += page
    return found
