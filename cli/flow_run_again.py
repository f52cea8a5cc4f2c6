"""The flow run of an earlier attempt, scheduled once more for this process to run."""

from __future__ import annotations

from typing import Any

from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun
from prefect.exceptions import ObjectNotFound
from prefect.states import AwaitingRetry

from cli.earlier_run import EarlierRun
from cli.failures import UsageError
from cli.run_data import PrefectAt


async def awaiting_retry(earlier: EarlierRun[Any], prefect: PrefectAt) -> FlowRun:
    """The flow run of a run that began here, scheduled as the UI's Retry does it, with what is asked for.

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
        earlier.require_in_place(earlier.asked.name or flow_run.name)
        if earlier.asked != earlier.config:
            parameters = {**flow_run.parameters, "config": earlier.asked.model_dump(mode="json")}
            await api.update_flow_run(flow_run.id, parameters=parameters)
        # Forced: a state that is final would be kept, and one that a killed process has left says Running.
        await api.set_flow_run_state(flow_run.id, AwaitingRetry(), force=True)
        return await api.read_flow_run(flow_run.id)
