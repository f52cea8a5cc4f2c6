"""What Prefect calls when a flow run has failed, crashed or been cancelled: its sessions are closed.

The runner calls a hook when the flow's process is gone; it therefore knows nothing but what it is handed.
"""

from __future__ import annotations

from collections.abc import Mapping

from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.flows import Flow

from flows.closing import end_sessions
from tasks.credentials import settings_for
from whitney.errors import NoEndpointError
from whitney.labels import FLOW_RUN, ROOT_ATTEMPT, ROOT_FLOW_RUN

NOT_SAID = object()


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
    unknown: list[Exception] = []
    blocks = credentials_blocks(flow_run.parameters)
    for credentials_block in sorted(blocks, key=str):
        try:
            settings = settings_for(credentials_block)
        except Exception as error:  # of whatever kind: the other endpoints bill, too
            # Where the environment names none, the parts that name no block have opened nothing.
            if len(blocks) == 1 or not isinstance(error, NoEndpointError):
                unknown.append(error)
            continue
        end_sessions(
            settings,
            str(flow_run.id),
            label=(ROOT_FLOW_RUN, str(flow_run.id)),
            attempt_label=ROOT_ATTEMPT,
            attempts_up_to=ended_attempts(flow_run),
        )
    if unknown:
        raise ExceptionGroup(f"sessions of flow run {flow_run.id} may be open where nothing says how to ask", unknown)


def credentials_blocks(parameters: Mapping[str, object]) -> set[str | None]:
    """The credentials blocks anywhere in a flow run's parameters, as Prefect stores them.

    None stands for the environment's endpoint: of a configuration that names no block.
    """
    found: set[str | None] = set()
    for part in parameters.values():
        found |= _named(part) or ({None} if isinstance(part, dict) else set())
    return found or {None}


def _named(value: object) -> set[str | None]:
    if isinstance(value, list):
        return {name for item in value for name in _named(item)}
    if not isinstance(value, dict):
        return set()
    found = {name for item in value.values() for name in _named(item)}
    own = value.get("credentials_block", NOT_SAID)
    return found | {own} if own is None or isinstance(own, str) else found


def ended_attempts(flow_run: FlowRun) -> int:
    """How many attempts of the flow run have come to an end: those whose sessions nobody needs any more.

    A runner calls `on_crashed` with the flow run as it was polled, before the attempt that has just died began: its
    `run_count` is one too low (seen with Prefect 3.9.1), and its state tells. Everybody else hands in what is. The
    server is not asked: a newer attempt may be running by now, and its session must live.
    """
    polled = flow_run.state is None or flow_run.state.type in {StateType.SCHEDULED, StateType.PENDING}
    return flow_run.run_count + polled
