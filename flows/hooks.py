"""What Prefect calls when a flow run has failed, crashed or been cancelled: its sessions are closed.

The runner calls a hook when the flow's process is gone; it therefore knows nothing but what it is handed.
"""

from __future__ import annotations

from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.flows import Flow

from flows.closing import end_sessions
from tasks.credentials import settings_for
from whitney.labels import FLOW_RUN, ROOT_ATTEMPT, ROOT_FLOW_RUN


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
