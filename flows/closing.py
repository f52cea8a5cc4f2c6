"""How the sessions of a flow run are closed that did not end well: by its own process, or by its hook in another.

The runner calls the hook when the flow's process is gone; it therefore knows nothing but what it is handed. What ends
a session on the normal path is `flows.durable.session_scope`.
"""

from __future__ import annotations

from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.flows import Flow
from prefect.logging import get_logger

from tasks.credentials import settings_for
from tasks.events import emit
from tasks.slots import free_slots
from tasks.verdicts import publish_verdicts
from whitney.errors import EndpointLostError, WhitneyError
from whitney.labels import ATTEMPT, FLOW_RUN, ROOT_ATTEMPT, ROOT_FLOW_RUN
from whitney.lifecycle import Verdict, close_sessions, could_not_list
from whitney.settings import WhitneySettings

# Prefect kills a cancelled process about 30 s after SIGTERM; whoever closes must be done well before.
DEADLINE_S = 20.0


def close_sessions_of_flow_run(flow: Flow[..., object], flow_run: FlowRun, state: State[object]) -> None:
    """The hook on failure, crash and cancellation. Sessions of a later attempt live: Retry may already be running."""
    credentials_block = (flow_run.parameters.get("config") or {}).get("credentials_block")
    end_sessions(
        settings_for(credentials_block),
        str(flow_run.id),
        label=(FLOW_RUN, str(flow_run.id)),
        attempts_up_to=ended_attempts(flow_run),
    )


def close_sessions_of_tree(flow: Flow[..., object], flow_run: FlowRun, state: State[object]) -> None:
    """The same hook of a flow that calls training flows: the sessions of all of them, on every endpoint it names.

    A runner calls no hook of a subflow's: when the process is gone, this is the one that closes.
    """
    blocks: list[str | None] = [*sorted(credentials_blocks(flow_run.parameters))]
    for credentials_block in blocks or [None]:
        end_sessions(
            settings_for(credentials_block),
            str(flow_run.id),
            label=(ROOT_FLOW_RUN, str(flow_run.id)),
            attempt_label=ROOT_ATTEMPT,
            attempts_up_to=ended_attempts(flow_run),
        )


def credentials_blocks(parameters: object) -> set[str]:
    """The names of the credentials blocks anywhere in a flow run's parameters, as Prefect stores them."""
    if isinstance(parameters, list):
        return {name for item in parameters for name in credentials_blocks(item)}
    if not isinstance(parameters, dict):
        return set()
    own = parameters.get("credentials_block")
    found = {name for item in parameters.values() for name in credentials_blocks(item)}
    return found | {own} if isinstance(own, str) else found


def ended_attempts(flow_run: FlowRun) -> int:
    """How many attempts of the flow run have come to an end: those whose sessions nobody needs any more.

    A runner calls `on_crashed` with the flow run as it was polled, before the attempt that has just died began: its
    `run_count` is one too low (seen with Prefect 3.9.1), and its state tells. Everybody else hands in what is. The
    server is not asked: a newer attempt may be running by now, and its session must live.
    """
    polled = flow_run.state is None or flow_run.state.type in {StateType.SCHEDULED, StateType.PENDING}
    return flow_run.run_count + polled


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
