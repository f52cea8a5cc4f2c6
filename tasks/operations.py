"""Each Whitney operation is one Prefect task.

Calling `sample(run, …)` and its kin posts the operation at once, in the order of the calls, and returns the task
that waits for it: order is decided where the loop is read, waits overlap freely.

The tasks are never cached, persisted or retried by Prefect. A cached operation would hand a retry the ids of a dead
session; a repeated one would be billed twice. Retrying belongs to the client, which repeats by seq_id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from prefect import Task, task
from prefect.cache_policies import NO_CACHE
from prefect.exceptions import TerminationSignal

from algorithms import result_sampler_id
from tasks.run import Completed, Run
from whitney.sequence import OperationHandle
from whitney.types import RUN_KINDS, SAMPLER_KINDS


@task(name="operation", task_run_name="{label}", cache_policy=NO_CACHE, persist_result=False, retries=0)
async def _await_operation(run: Run, handle: OperationHandle, label: str) -> Completed:
    """Wait for a posted operation and count what it cost."""
    return run.count(handle.kind, await handle, handle)


_TASKS: dict[str, Task[[Run, OperationHandle, str], Coroutine[Any, Any, Completed]]] = {
    kind: _await_operation.with_options(name=kind) for kind in (*RUN_KINDS, *SAMPLER_KINDS)
}


def run_operation(run: Run, kind: str, payload: dict[str, Any], label: str) -> Awaitable[Completed]:
    """Post an operation on the run itself; the awaitable is its task."""
    return _posted(run, kind, payload, label, lambda: run.client.submit_run_operation(run.run_id, kind, payload))


def sampler_operation(
    run: Run, sampler_id: str, kind: str, payload: dict[str, Any], label: str
) -> Awaitable[Completed]:
    """Post an operation on one of the run's snapshots; the awaitable is its task."""
    return _posted(
        run,
        kind,
        payload,
        label,
        lambda: run.client.submit_sampler_operation(run.run_id, sampler_id, kind, payload),
    )


def _posted(
    run: Run, kind: str, payload: dict[str, Any], label: str, post: Callable[[], OperationHandle]
) -> Awaitable[Completed]:
    """The one place that every operation goes through: the gate is asked, then it is posted.

    A refusal is raised where the operation is awaited, as the endpoint's would be: those posted before it are.
    """
    try:
        most = run.meter.gate.admit(kind, payload)
    except Exception as refusal:
        return _refused(refusal)
    handle = post()
    run.meter.hold(handle, most)
    return _TASKS[kind](run, handle, label)


async def _refused(refusal: Exception) -> Completed:
    raise refusal


def sample(run: Run, sampler_id: str, request: dict[str, Any], label: str = "sample") -> Awaitable[Completed]:
    """Draw `num_samples` completions of one prompt: a group is one operation, its prompt is prefilled once."""
    return sampler_operation(run, sampler_id, "sample", request, label)


def logprobs(
    run: Run, sampler_id: str, tokens: list[int], label: str = "logprobs", *, topk: int = 0
) -> Awaitable[Completed]:
    """Teacher-forced log-probs of `tokens`; take the last n entries, never slice from the front.

    With `topk` the answer also has the K likeliest tokens at every place.
    """
    payload = {"input": {"token_ids": tokens}, "topk": topk}
    return sampler_operation(run, sampler_id, "logprobs", payload, label)


def forward(run: Run, payload: dict[str, Any], label: str = "forward") -> Awaitable[Completed]:
    """Loss and log-probs without a gradient."""
    return run_operation(run, "forward", payload, label)


def forward_backward(run: Run, payload: dict[str, Any], label: str = "forward_backward") -> Awaitable[Completed]:
    """Add the gradient of a loss to what has accumulated since the last `optim_step`."""
    return run_operation(run, "forward_backward", payload, label)


def optim_step(run: Run, optimizer: dict[str, Any], label: str = "optim_step") -> Awaitable[Completed]:
    """Apply the accumulated gradient. Snapshots taken before it no longer are the run's current weights."""
    run.snapshot = None
    return run_operation(run, "optim_step", {"optimizer": optimizer}, label)


def save_state(run: Run, label: str = "save_state") -> Awaitable[Completed]:
    """Save weights and optimizer; the state outlives run and session."""
    return run_operation(run, "save_state", {}, label)


def export_lora(run: Run, label: str = "export_lora") -> Awaitable[Completed]:
    """Write the adapter as a PEFT archive; the artifact outlives run and session."""
    return run_operation(run, "export_lora", {}, label)


async def current_sampler(run: Run) -> str:
    """The snapshot of the run's current weights, taken once however many ask for it, at the same time too."""
    if run.snapshot is None:
        taking = run_operation(run, "save_weights_for_sampler", {}, "save_weights_for_sampler")
        run.snapshot = asyncio.ensure_future(taking)
    # Shielded: one who stops waiting must not take the snapshot away from the others.
    return result_sampler_id((await asyncio.shield(run.snapshot)).result)


async def in_order(*operations: Awaitable[Completed]) -> list[Completed]:
    """Await operations together; of several failures, raise the one that was posted first.

    Those behind a failed operation end cancelled, and their answers may arrive before its own: whichever came first
    would otherwise hide the cause. An order to stop is no failure, and waits for nobody: Prefect raises SIGTERM in
    whatever runs at that moment, which may be the task of one operation while another's takes ten minutes.
    """
    waiting = [asyncio.ensure_future(operation) for operation in operations]
    pending = set(waiting)
    try:
        while pending:
            ended, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_EXCEPTION)
            for one in ended:
                if not one.cancelled() and (order := _order_to_stop(one.exception())):
                    raise order
    finally:
        for one in pending:
            one.cancel()
        if pending:
            await asyncio.wait(pending)
    return [one.result() for one in waiting]


def _order_to_stop(error: BaseException | None) -> BaseException | None:
    """What is no failure; or is behind one, where Prefect has tripped over it in a task run that was just beginning."""
    if error is None or not isinstance(error, Exception):
        return error
    behind: BaseException | None = error
    while behind is not None and not isinstance(behind, TerminationSignal):
        behind = behind.__context__
    return behind
