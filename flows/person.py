"""A person's word in the middle of a flow: asked once, in the Resume form of the Prefect UI, and remembered.

A run of a deployment is suspended: its process ends, and Resume starts another one. Any other run, and a flow below
another, waits in its process. Prefect forgets which pauses it has had when Retry is pressed; so the answer is a label
of the flow run, and a Retry does not ask again.
"""

from __future__ import annotations

from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun
from prefect.context import FlowRunContext
from prefect.exceptions import FlowPauseTimeout
from prefect.flow_runs import apause_flow_run, asuspend_flow_run
from prefect.input import RunInput
from pydantic import Field

from flows.early_end import DeclinedError
from tasks.events import emit

DECISION = "whitney.decision."
"""Begins the label of a flow run that holds an answer; the question's key ends it."""

GO_ON, DECLINED = "go on", "declined"

LOOK_EVERY_S = 2
"""Seconds between two looks whether a run that waits in its process has been resumed."""


class NotAnsweredError(TimeoutError):
    """Nobody has said anything in time; the message names the question and the setting."""


class Decision(RunInput):
    """The form. Whoever presses Resume and submits it as it is goes on."""

    go_on: bool = Field(True, description="Go on. Switched off, the run is declined: it ends here, as Cancelled.")


async def ask_person(key: str, question: str, *, timeout_s: float) -> None:
    """Wait until a person says to go on; at once, if one has said so before.

    What must not be held while somebody thinks — a session, a slot, a lock — is not to be held here.

    Args:
        key: names the question within the flow run: one key is asked once, whatever is retried.
        question: markdown, shown above the form.
        timeout_s: seconds to wait.

    Raises:
        DeclinedError: the person said no, now or before.
        NotAnsweredError: nobody answered; a suspended run is failed by the Prefect server itself.
        Pause: Prefect's own; the run is suspended, and this process ends.
    """
    context = FlowRunContext.get()
    if context is None or context.flow_run is None:
        raise RuntimeError("a person can only be asked from within a flow run")
    flow_run_id = context.flow_run.id
    answer = (await _read(flow_run_id)).labels.get(DECISION + key)
    if answer is None:
        decision = await _wait(context.flow_run, key, question, timeout_s)
        answer = GO_ON if decision.go_on else DECLINED
        async with get_client() as api:
            await api.update_flow_run_labels(flow_run_id, {DECISION + key: answer})
    if answer != GO_ON:
        raise DeclinedError(f"declined by a person ({key})")


async def _wait(run: FlowRun, key: str, question: str, timeout_s: float) -> Decision:
    form = Decision.with_initial_data(description=question, go_on=True)
    emit("paused", key=key, question=question, flow_run_id=str(run.id), timeout_s=timeout_s)
    if run.deployment_id and not run.parent_task_run_id:
        # It returns in the process that Resume starts, with what this one's successor was told.
        decision = await asuspend_flow_run(wait_for_input=form, key=key, timeout=round(timeout_s))
    else:
        decision = await _wait_here(form, key, timeout_s)
        # Prefect counts a run that was resumed in its process as one attempt more (seen with 3.9.1: server 2, here 1).
        # Sessions are labelled with the attempt: the reaper would take those of this process for an earlier one's.
        run.run_count = (await _read(run.id)).run_count
    emit("resumed", key=key)
    return decision


async def _wait_here(form: type[Decision], key: str, timeout_s: float) -> Decision:
    try:
        return await apause_flow_run(wait_for_input=form, key=key, timeout=round(timeout_s), poll_interval=LOOK_EVERY_S)
    except FlowPauseTimeout as error:
        raise NotAnsweredError(f"nobody has answered within {timeout_s / 3600:g} hours ({key})") from error


async def _read(flow_run_id: UUID) -> FlowRun:
    async with get_client() as api:
        return await api.read_flow_run(flow_run_id)
