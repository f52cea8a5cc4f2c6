"""Export: the adapter as a PEFT folder on the caller's disk; a persisted subflow, so that a Retry adopts it."""

from __future__ import annotations

from flows.durable.attempt import Attempt
from flows.durable.delivery import fetch_adapter
from flows.durable.outcome import ExportOutcome, Start
from flows.lifecycle import block_flow
from tasks.events import emit
from tasks.operations import export_lora


@block_flow("export", run_name="export adapter")
async def export(attempt: Attempt, start: Start) -> ExportOutcome:
    """Export the run's adapter, fetch it, check it, unpack it into the run folder.

    Raises:
        AdapterError: it is not what was trained, see `tasks.adapter.check_adapter`; the state it came from is kept.
    """
    policy = await attempt.policy(start)
    artifact_id = (await export_lora(policy)).result["artifact_id"]
    digest, facts = await fetch_adapter(attempt, artifact_id, start.state_id)
    outcome = ExportOutcome(
        state_id=start.state_id,
        artifact_id=artifact_id,
        path=str(attempt.folder.adapter_dir),
        sha256=digest,
        facts=facts,
        final=attempt.budget.reached is None,
        attempt=attempt.scope.attempt,
        usage=attempt.scope.meter.take(),
    )
    emit("exported", path=outcome.path, sha256=digest)
    return outcome
