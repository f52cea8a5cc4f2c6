"""How a failed run's sessions ended, as an artifact of the flow run: for whoever looks at it in the morning."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from prefect.client.schemas.actions import ArtifactCreate
from prefect.logging import get_logger

from tasks.brief_api import brief_api
from whitney.lifecycle import Verdict

KEY = "whitney-sessions"


def publish_verdicts(flow_run_id: str, verdicts: Sequence[Verdict]) -> None:
    """Attach the verdicts to the flow run. Synchronous: hooks and the end of a process are.

    Never in the way of what matters more: that the sessions are closed. So a Prefect server that is gone is logged.
    """
    if not verdicts:
        return
    artifact = ArtifactCreate(
        key=KEY,
        type="markdown",
        description="How the sessions of this flow run ended",
        data=verdicts_markdown(verdicts),
        flow_run_id=UUID(flow_run_id),
    )
    try:
        with brief_api() as api:
            api.create_artifact(artifact)
    except Exception as error:  # of whatever kind: see above
        get_logger("whitney.lifecycle").warning("the verdicts could not be shown in the Prefect UI: %s", error)


def verdicts_markdown(verdicts: Sequence[Verdict]) -> str:
    """A line a session; what still bills comes first, with the command that ends it."""
    told = sorted(verdicts, key=lambda verdict: verdict.closed)
    lines = [f"- {'✅' if verdict.closed else '❌'} {verdict.message}" for verdict in told]
    return "\n".join(["# Sessions", "", *lines])
