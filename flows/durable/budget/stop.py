"""How a run ends that its budget has stopped: well, at the last block that is saved, and resumable."""

from __future__ import annotations

from typing import NoReturn
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.logging import get_run_logger
from prefect.runtime import flow_run
from prefect.states import Crashed

from flows.config import ConfigError
from flows.durable.attempt import Attempt
from flows.durable.budget.billed import billed
from flows.durable.budget.open import WHOLE
from flows.durable.budget.pause import suspend
from flows.durable.children import completed_children
from flows.durable.outcome import ExportOutcome, Start
from flows.early_end import NoAdapterError
from tasks.lineage import told
from whitney.errors import WhitneyError
from whitney.labels import FLOW_RUN, STOPPED_WITH_PIPELINE


async def stop_at_last_block(attempt: Attempt, ended: BaseException) -> Start:
    """End what the budget has interrupted; where the run stands.

    Args:
        attempt: the attempt.
        ended: how the subflow ended that was interrupted; raised again where it was not the budget's doing.

    Raises:
        NoAdapterError: no block is saved yet.
        Pause: Prefect's own: a person is asked first.
    """
    reached = attempt.budget.reached
    if reached is None:
        raise ended
    await suspend(attempt)
    if attempt.budget.interrupted:
        # The run stands in the middle of a block: what is exported is restored from the state before it.
        await attempt.scope.start_over()
    if not attempt.chain:
        sooner = "; a new run with a lower save_every saves its first block sooner"
        raise NoAdapterError(
            f"{reached}. No block is saved yet, so there is no adapter. Go on with a higher {reached.path}, to which "
            f"what was billed so far counts{await _billed(attempt)}{sooner if attempt.config.save_every > 1 else ''}"
        ) from ended
    attempt.stopped = str(reached)
    get_run_logger().warning("stopped: %s", attempt.stopped)
    return attempt.chain[-1].end


async def end_without_export(attempt: Attempt, ended: BaseException) -> NoReturn:
    """End a run whose budget leaves nothing for the export: one that was billed, and its answer lost, takes the place.

    Args:
        attempt: the attempt.
        ended: how the export ended; raised again where it was not the budget's doing.

    Raises:
        NoAdapterError: as it says.
        Pause: Prefect's own: a person is asked first.
    """
    reached = attempt.budget.reached
    if reached is None or not reached.ends:
        raise ended
    await suspend(attempt)
    raise NoAdapterError(
        f"{reached}. The last block is saved, and there is no adapter of it yet. Go on with {reached.path} = "
        f"{reached.told_enough(reached.used + reached.needed)} or more"
    ) from ended


async def _billed(attempt: Attempt) -> str:
    """How much that was, of all attempts; "" where the endpoint does not say."""
    try:
        sessions = await attempt.client.list_sessions(label=(FLOW_RUN, attempt.scope.flow_run_id))
        return f" ({told(billed(sessions))})"
    except (WhitneyError, ConfigError):
        return ""


async def note_stop(attempt: Attempt) -> None:
    """Tell the pipeline's next attempt of a stage that its limits have stopped: it is Completed, and not finished."""
    shared = {account.name for account in WHOLE.get().accounts}
    if not shared:
        return
    reached = attempt.budget.reached
    stopped = "yes" if reached is not None and reached.account in shared else "no"
    async with get_client() as api:
        await api.update_flow_run_labels(UUID(attempt.scope.flow_run_id), {STOPPED_WITH_PIPELINE: stopped})


async def revoke_earlier_export(start: Start) -> None:
    """Take back what was exported at an earlier state, where the budget had stopped the run: it has gone on since.

    The child is set to Crashed, which Prefect answers with a new one.
    """
    if flow_run.run_count == 1:
        return
    async with get_client() as api:
        for child in await completed_children(flow_run.id):
            earlier = child.outcome
            if isinstance(earlier, ExportOutcome) and not earlier.final and earlier.state_id != start.state_id:
                gone_on: State[None] = Crashed(
                    message="exported where the budget had stopped the run, which has gone on since"
                )
                await api.set_flow_run_state(child.flow_run_id, gone_on, force=True)
