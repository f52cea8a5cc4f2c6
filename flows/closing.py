"""How the sessions of a flow run are closed that did not end well: by its own process, or by its hook in another.

What ends a session on the normal path is `flows.durable.session_scope`; the hooks are in `flows.hooks`.
"""

from __future__ import annotations

from prefect.logging import get_logger

from tasks.events import emit
from tasks.slots import free_slots
from tasks.verdicts import publish_verdicts
from whitney.errors import EndpointLostError, WhitneyError
from whitney.labels import ATTEMPT
from whitney.lifecycle import Verdict, close_sessions, could_not_list
from whitney.settings import WhitneySettings

# Prefect kills a cancelled process about 30 s after SIGTERM; whoever closes must be done well before.
DEADLINE_S = 20.0


def end_sessions(
    settings: WhitneySettings,
    flow_run_id: str,
    *,
    label: tuple[str, str],
    attempts_up_to: int,
    attempt_label: str = ATTEMPT,
    whose: str = "",
) -> bool:
    """Cancel every run of the sessions with `label`, poll until terminal, close; tell how it went, wherever it is read.

    Idempotent and bounded by `DEADLINE_S`; raises nothing for Whitney's reasons, so that it hides no other error.
    Synchronous: in a hook there is an event loop, and it is not ours.

    Args:
        settings: the endpoint.
        flow_run_id: whose sessions they are; Prefect shows the verdicts with it.
        label: what they are found by: the answer that held an id may be what was lost.
        attempts_up_to: sessions of later attempts are left alone.
        attempt_label: whose attempts: the training flow's own, or the top-level flow run's.
        whose: begins the message, where they are not this attempt's own.

    Returns:
        Whether everything that was open is closed.
    """
    try:
        verdicts = close_sessions(
            settings,
            label=label,
            attempts_up_to=attempts_up_to,
            attempt_label=attempt_label,
            deadline_s=DEADLINE_S,
            on_progress=_tell_progress,
        )
    except EndpointLostError:
        what = f"the sessions of flow run {flow_run_id} are open on a gateway that has ended, and bill nothing"
        verdicts = [Verdict("", False, {}, 0.0, f"{what}; the next attempt closes them")]
    except WhitneyError as error:
        verdicts = [Verdict("", False, {}, 0.0, could_not_list(flow_run_id, str(error)))]
    for verdict in verdicts:
        _tell(verdict, whose)
    free_slots(
        (verdict.labels for verdict in verdicts if verdict.closed),
        still_open=[verdict.labels for verdict in verdicts if not verdict.closed],
    )
    publish_verdicts(flow_run_id, verdicts)
    return all(verdict.closed for verdict in verdicts)


def _tell(verdict: Verdict, whose: str) -> None:
    """In the log, and to whoever listens in this process."""
    message = whose + verdict.message
    logger = get_logger("whitney.lifecycle")
    (logger.info if verdict.closed else logger.error)(message)
    emit("verdict", message=message, closed=verdict.closed)
    if verdict.closed:
        emit("session_closed", session_id=verdict.session_id)


def _tell_progress(message: str) -> None:
    emit("closing", message=message)
