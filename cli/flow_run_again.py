"""The flow run of an earlier attempt, scheduled once more: for this process to run, or for a deployment's worker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.objects import FlowRun
from prefect.exceptions import ObjectNotFound
from prefect.states import AwaitingRetry

from cli.earlier_run import EarlierRun
from cli.failures import UsageError
from cli.prefect_setup import flow_run_page
from cli.run_data import PrefectAt


async def awaiting_retry(earlier: EarlierRun[Any], prefect: PrefectAt) -> FlowRun:
    """The flow run of a run that began here, scheduled as the UI's Retry does it.

    Raises:
        UsageError: that Prefect server does not know it, or its folder was renamed.
    """
    async with get_client() as api:
        try:
            flow_run = await api.read_flow_run(earlier.flow_run_id)
        except ObjectNotFound:
            began_at = earlier.endpoints.prefect_api_url if earlier.endpoints else None
            raise UsageError(
                f"the Prefect server at {prefect.shown} does not know flow run {earlier.flow_run_id}: name the "
                f"one the run began with{f', {began_at}' if began_at else ''}, by PREFECT_API_URL"
            ) from None
        await _schedule(api, earlier, flow_run)
        return await api.read_flow_run(flow_run.id)


def left_to_worker(earlier: EarlierRun[Any], *, allow_drift: bool) -> list[str]:
    """What to say of a deployment's run, now that a worker will go on with it; empty of any other run.

    The UI's Retry does the same, but for two things: it changes no parameter, and refuses a run that has Completed, as
    one has that its budget has stopped.

    Raises:
        UsageError: it has not ended, or its folder was renamed.
    """
    return list(asyncio.run(_leave_to_worker(earlier, allow_drift=allow_drift)))


async def _leave_to_worker(earlier: EarlierRun[Any], *, allow_drift: bool) -> Iterator[str]:
    async with get_client() as api:
        try:
            flow_run = await api.read_flow_run(earlier.flow_run_id)
        except Exception:  # unknown there, or nobody answers: what is done next meets it again, and tells it
            return iter(())
        if flow_run.deployment_id is None:
            return iter(())
        _require_ended(earlier, flow_run)
        await _schedule(api, earlier, flow_run)
    return _told(earlier, flow_run, allow_drift=allow_drift)


def _require_ended(earlier: EarlierRun[Any], flow_run: FlowRun) -> None:
    """Raises UsageError where somebody is at work on it, or waits for a word."""
    state = flow_run.state
    if state is None or state.is_final() or state.is_scheduled():  # scheduled before: it may have other parameters now
        return
    page = flow_run_page(str(flow_run.id)) or flow_run.name
    if state.is_paused():
        raise UsageError(f"{earlier.folder} waits for a person's answer: Resume on {page} gives it")
    raise UsageError(
        f"{earlier.folder} has not ended, its flow run is {state.name}: wait for it, or Cancel it on {page}"
    )


async def _schedule(api: PrefectClient, earlier: EarlierRun[Any], flow_run: FlowRun) -> None:
    """With the configuration that is asked for; forced, for a state that is final would be kept."""
    earlier.require_in_place(earlier.asked.name or flow_run.name)
    if earlier.asked != earlier.config:
        parameters = {**flow_run.parameters, "config": earlier.asked.model_dump(mode="json")}
        await api.update_flow_run(flow_run.id, parameters=parameters)
    await api.set_flow_run_state(flow_run.id, AwaitingRetry(), force=True)


def _told(earlier: EarlierRun[Any], flow_run: FlowRun, *, allow_drift: bool) -> Iterator[str]:
    yield f"{earlier.folder} is a deployment's run. Scheduled: a worker goes on with it, nothing runs here"
    if allow_drift:
        yield "The worker looks for drift, too: it needs WHITNEY_ALLOW_DRIFT=1 in its environment"
    if page := flow_run_page(str(flow_run.id)):
        yield f"Prefect:   {page}"
