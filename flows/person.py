"""A person's word in the middle of a flow: asked once, in the Resume form of the Prefect UI, and remembered.

A run of a deployment is suspended: its process ends, and Resume starts another one. Any other run, and a flow below
another, waits in its process. A yes is a label of the flow run, so that a Retry does not ask again; of a form that asks
for more than the word, whoever asks keeps the answer. A no is not kept: whoever presses Retry is asked once more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from copy import copy
from typing import Any, TypeVar
from uuid import UUID

from prefect.artifacts import MarkdownArtifact
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun
from prefect.context import FlowRunContext
from prefect.flow_runs import apause_flow_run, asuspend_flow_run
from prefect.input import RunInput
from prefect.logging import get_run_logger
from pydantic import Field, create_model

from flows.early_end import DeclinedError
from tasks.events import emit
from tasks.report import artifact_key

DECISION = "whitney.decision."
"""Begins the label of a flow run that a person has said yes to; the question's key ends it."""

GO_ON = "go on"

OVERTIME_S = 60
"""What Prefect waits longer than this process: after its own time it puts a message of its own in place of ours."""

LOOK_EVERY_S = 2
"""Seconds between two looks whether a run that waits in its process has been resumed."""


class NotAnsweredError(RuntimeError):
    """Nobody has said anything in time. No TimeoutError: to Prefect that is a flow that has taken too long."""


class Decision(RunInput):
    """The form. Whoever presses Resume and submits it as it is goes on."""

    go_on: bool = Field(True, description="Switch it off to decline: the run then ends here, as Cancelled.")


Form = TypeVar("Form", bound=Decision)


async def ask_person(key: str, question: str, *, why: str, timeout_s: float) -> None:
    """Wait until a person says to go on; at once where one has said so before.

    Args:
        key: names the question within the flow run: one key is asked once, whatever is retried.
        question, why, timeout_s: as `answer_of`.

    Raises:
        DeclinedError, NotAnsweredError, Pause: as `answer_of`.
    """
    flow_run_id = _current().id
    if (await _read(flow_run_id)).labels.get(DECISION + key) == GO_ON:
        return
    await answer_of(key, question, Decision, why=why, timeout_s=timeout_s)
    async with get_client() as api:
        await api.update_flow_run_labels(flow_run_id, {DECISION + key: GO_ON})


async def answer_of(
    key: str, question: str, form: type[Form], *, why: str, timeout_s: float, **suggested: object
) -> Form:
    """Wait until a person says to go on; what they have said, which is for the caller to keep.

    What must not be held while somebody thinks — a session, a slot, a lock — is not to be held here.

    Args:
        key: names the question within the attempt.
        question: markdown, shown above the form, and kept as an artifact of the flow run.
        form: what is asked for beside the word. The Prefect server refuses what is not as its fields have it.
        why: the same in a line, for the log.
        timeout_s: seconds to wait.
        suggested: what stands in the form's other fields.

    Raises:
        DeclinedError: the person said no.
        NotAnsweredError: nobody answered; a suspended run is failed by the Prefect server itself.
        Pause: Prefect's own; the run is suspended, and this process ends.
    """
    asked = _filled_in(form, suggested).with_initial_data(description=question)
    decision = await _wait(_current(), asked, key=key, question=question, why=why, timeout_s=timeout_s)
    if not decision.go_on:
        raise DeclinedError(f"declined by a person ({key})")
    return decision


def _filled_in(form: type[Form], suggested: Mapping[str, object]) -> type[Form]:
    """The form with defaults of its own. Prefect's `with_initial_data` drops what else the fields say, bounds too."""
    fields: dict[str, Any] = {}
    for name, value in suggested.items():
        field = copy(form.model_fields[name])
        field.default = value
        fields[name] = (field.annotation, field)
    return create_model(form.__name__, __base__=form, **fields)


def _current() -> FlowRun:
    context = FlowRunContext.get()
    if context is None or context.flow_run is None:
        raise RuntimeError("a person can only be asked from within a flow run")
    return context.flow_run


async def _wait(run: FlowRun, form: type[Form], *, key: str, question: str, why: str, timeout_s: float) -> Form:
    emit("paused", key=key, question=question, flow_run_id=str(run.id), timeout_s=timeout_s)
    # Prefect knows a pause by its key, also after a Retry that was forced, as the UI's is: each attempt has its own. A
    # run that was suspended and resumed is the same attempt still.
    key_of_attempt = f"{key}-{run.run_count}"
    if key_of_attempt not in (run.empirical_policy.pause_keys or ()):  # the process that Resume starts comes here, too
        await _tell(key, question, why, timeout_s)
    if _is_suspended(run):
        # It returns in the process that Resume starts, with what this one's successor was told.
        decision = await asuspend_flow_run(wait_for_input=form, key=key_of_attempt, timeout=_whole(timeout_s))
    else:
        decision = await _wait_here(form, key_of_attempt, timeout_s)
        # Prefect counts a run that was resumed in its process as one attempt more (seen with 3.9.1: server 2, here 1).
        # Sessions are labelled with the attempt: the reaper would take those of this process for an earlier one's.
        run.run_count = (await _read(run.id)).run_count
    emit("resumed", key=key, go_on=decision.go_on)
    return decision


def is_suspended() -> bool:
    """Whether the current flow run would be suspended, and not wait in its process."""
    context = FlowRunContext.get()
    return context is not None and context.flow_run is not None and _is_suspended(context.flow_run)


def _is_suspended(run: FlowRun) -> bool:
    return bool(run.deployment_id and not run.parent_task_run_id)


async def _tell(key: str, question: str, why: str, timeout_s: float) -> None:
    """In the log and among the artifacts: the form is seen only by who presses Resume."""
    get_run_logger().warning(
        "waits for a person: %s. The answer is given under Resume, on this run's page in the Prefect UI; without one "
        "in %.3g hours the run ends, with nothing held or billed meanwhile",
        why,
        timeout_s / 3600,
    )
    description = f"waits for a person: {why}"
    await MarkdownArtifact(key=artifact_key(f"question-{key}"), description=description, markdown=question).acreate()


async def _wait_here(form: type[Form], key: str, timeout_s: float) -> Form:
    patience = _whole(timeout_s) + OVERTIME_S
    try:
        async with asyncio.timeout(timeout_s):
            return await apause_flow_run(wait_for_input=form, key=key, timeout=patience, poll_interval=LOOK_EVERY_S)
    except TimeoutError as error:
        raise NotAnsweredError(f"nobody has answered within {timeout_s / 3600:.3g} hours ({key})") from error


def _whole(timeout_s: float) -> int:
    """Prefect counts whole seconds; 0 would be for ever."""
    return max(1, round(timeout_s))


async def _read(flow_run_id: UUID) -> FlowRun:
    async with get_client() as api:
        return await api.read_flow_run(flow_run_id)
