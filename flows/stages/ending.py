"""What is looked at when a pipeline ends: whether a session is open, and whether the adapters are where it says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from flows.durable.telling import warn
from flows.stages.outcome import StageOutcome
from models.adapter import WEIGHTS_FILE
from whitney.client import WhitneyClient
from whitney.errors import WhitneyError
from whitney.labels import ROOT_FLOW_RUN


async def open_sessions_below(flow_run_id: str, client: WhitneyClient) -> int | None:
    """How many sessions of all stages are open; None when the endpoint does not say."""
    try:
        sessions = await client.list_sessions(label=(ROOT_FLOW_RUN, flow_run_id))
    except WhitneyError as error:  # all is trained, exported and closed: not worth failing for
        warn(f"cannot tell whether a session is still open: {error}")
        return None
    return sum(session.status == "open" for session in sessions)


def tell_of_lost_adapters(outcomes: Sequence[StageOutcome]) -> None:
    """Stages hand on states, not adapter folders: a pipeline does not fail for one that was moved or deleted."""
    for outcome in outcomes:
        if not adapter_is_there(outcome):
            warn(
                f"stage {outcome.stage!r}: its adapter {outcome.adapter} is not there any more. The endpoint keeps "
                f"it as artifact {outcome.artifact_id}, and what was trained as state {outcome.state_id}; to train the "
                f"stage again with all after it: `whitney run PIPELINE --from {outcome.stage}`"
            )


def adapter_is_there(outcome: StageOutcome) -> bool:
    """Whether the folder that an outcome names holds an adapter, as far as can be seen from here."""
    return (Path(outcome.adapter) / WEIGHTS_FILE).is_file()
