"""Skip a deployment's run that would train again what its last one has trained: same data, same configuration.

Each run that finishes leaves a fingerprint on its flow run, as a label. Code is not in it: neither the project's own
nor a reward function's.
"""

from __future__ import annotations

from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterDeploymentId,
    FlowRunFilterState,
    FlowRunFilterStateName,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.client.schemas.sorting import FlowRunSort
from prefect.context import FlowRunContext

from flows.durable.telling import warn
from flows.early_end import SKIPPED, SkippedError

FINGERPRINT = "whitney.fingerprint"
"""Label of a flow run: what it has trained, in a hash."""


async def skip_if_unchanged(fingerprint: str) -> None:
    """End a run that would do the same again. For flows that have `skip_unchanged` set; below another flow it is its.

    Raises:
        SkippedError: names the run that has done it.
    """
    run = _current()
    if run.parent_task_run_id is not None:
        return
    if run.deployment_id is None:
        warn("skip_unchanged has no effect: only runs of a deployment are compared with one another")
    elif done := await unchanged_since(fingerprint):
        raise SkippedError(
            f"data, configuration and template are those of {done.name} ({done.id}), which completed at "
            f"{done.end_time:%Y-%m-%d %H:%M} UTC; set skip_unchanged = false to train all the same"
        )


async def unchanged_since(fingerprint: str) -> FlowRun | None:
    """The last completed run of this one's deployment, if it has left the same fingerprint; skipped ones do not count.

    None for a run without a deployment, below another flow, or that is not in its first attempt: a Retry goes on with
    what was begun.
    """
    run = _current()
    if run.deployment_id is None or run.parent_task_run_id is not None or run.run_count > 1:
        return None
    completed = FlowRunFilter(
        deployment_id=FlowRunFilterDeploymentId(any_=[run.deployment_id]),
        state=FlowRunFilterState(
            type=FlowRunFilterStateType(any_=[StateType.COMPLETED]), name=FlowRunFilterStateName(not_any_=[SKIPPED])
        ),
    )
    async with get_client() as api:
        found = await api.read_flow_runs(flow_run_filter=completed, sort=FlowRunSort.END_TIME_DESC, limit=1)
    return next((one for one in found if one.labels.get(FINGERPRINT) == fingerprint), None)


async def remember_fingerprint(fingerprint: str) -> None:
    """Leave it for the deployment's next run, once this one has nothing left to do but to end."""
    run = _current()
    if run.deployment_id is not None and run.parent_task_run_id is None:
        async with get_client() as api:
            await api.update_flow_run_labels(run.id, {FINGERPRINT: fingerprint})


def _current() -> FlowRun:
    context = FlowRunContext.get()
    assert context is not None
    assert context.flow_run is not None
    return context.flow_run
