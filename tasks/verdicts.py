"""How a failed run's sessions ended: an artifact of the flow run for whoever looks at it in the morning, and, where one
is still open, an event that wakes somebody (an automation of `whitney deploy` sends a notification).
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from prefect.client.schemas.actions import ArtifactCreate
from prefect.events import emit_event
from prefect.logging import get_logger

from tasks.brief_api import brief_api
from whitney.lifecycle import Verdict

KEY = "whitney-sessions"

LEFT_OPEN = "whitney.session.left-open"
"""Event: what bills on after its run has ended."""


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
        for verdict in verdicts:
            if not verdict.closed:
                tell_left_open(flow_run_id, verdict.session_id, verdict.message)
        with brief_api() as api:
            api.create_artifact(artifact)
    except Exception as error:  # of whatever kind: see above
        get_logger("whitney.lifecycle").warning("the verdicts could not be shown in the Prefect UI: %s", error)


def tell_left_open(flow_run_id: str, session_id: str, message: str) -> None:
    """Emit the event of a session that could not be closed; `session_id` is empty where not even that is known.

    It is sent in the background, and lost where the Prefect server cannot be reached.
    """
    name = session_id or "unknown"
    emit_event(
        event=LEFT_OPEN,
        resource={"prefect.resource.id": f"whitney.session.{name}", "prefect.resource.name": name},
        related=[{"prefect.resource.id": f"prefect.flow-run.{flow_run_id}", "prefect.resource.role": "flow-run"}],
        payload={"session_id": session_id, "flow_run_id": flow_run_id, "message": message},
    )


def verdicts_markdown(verdicts: Sequence[Verdict]) -> str:
    """A line a session; what still bills comes first, with the command that ends it."""
    told = sorted(verdicts, key=lambda verdict: verdict.closed)
    lines = [f"- {'✅' if verdict.closed else '❌'} {verdict.message}" for verdict in told]
    return "\n".join(["# Sessions", "", *lines])
