"""Cancel, pressed on the page of a flow run that no runner looks after.

Prefect's runner ends the process of a flow run that it has started. For one below that — a stage of a pipeline, a block
of cycles, a measurement — nobody does: its page has the button, the server says Cancelling, and it would train on to
its end, and bill. The same goes for a run that no runner has started (`whitney run`).

So each of these is entered in a list while its function is at work, and one task of the process asks Prefect now and
then which of them are told to cancel. Such a function is interrupted where it waits, as by Ctrl-C: the session is
closed on the way out. Its flow run ends as Cancelled, and with it those above.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterId,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import StateType
from prefect.context import FlowRunContext
from prefect.logging import get_logger

from flows.early_end import CancelPressedError
from whitney.heartbeat import report_order_to_stop

LOOK_EVERY_S = 5.0
"""Seconds between two requests to the Prefect server: one for all flow runs of the process, however deep."""


@dataclass(slots=True)
class Entered:
    """The flow runs of this process that are at work, each with what interrupts it; and how many close sessions."""

    limits: dict[UUID, asyncio.Timeout] = field(default_factory=dict)
    closing: int = 0


_entered: ContextVar[Entered] = ContextVar("flow runs that may be cancelled on their pages")


@asynccontextmanager
async def heeds_cancel() -> AsyncIterator[None]:
    """Interrupt the block when Cancel is pressed on the page of the current flow run, unless a runner does it.

    The outermost flow asks for all: those that it calls are found in its context.

    Raises:
        CancelPressedError: it was pressed.
    """
    if (entered := _entered.get(None)) is not None:
        async with _interruptible(entered):
            yield
        return
    token = _entered.set(entered := Entered())
    asking = asyncio.create_task(_look(entered), name="cancel-pressed")
    asking.add_done_callback(report_order_to_stop)
    try:
        async with _interruptible(entered):
            yield
    finally:
        _entered.reset(token)
        asking.cancel()
        # Not awaited itself: its CancelledError could not be told from one that is meant for the flow.
        await asyncio.wait([asking])


@contextmanager
def unheeded() -> Iterator[None]:
    """Let nothing interrupt the block: sessions are being closed, and that is all that Cancel could ask for."""
    entered = _entered.get(None) or Entered()
    entered.closing += 1
    try:
        yield
    finally:
        entered.closing -= 1


@asynccontextmanager
async def _interruptible(entered: Entered) -> AsyncIterator[None]:
    context = FlowRunContext.get()
    run = context.flow_run if context else None
    if run is None or run.deployment_id is not None:  # the runner that has started it sees to it
        yield
        return
    pressed = CancelPressedError(f"{run.name} was cancelled on its page")
    try:
        # A time limit that nobody knows yet: the standard library's way to interrupt a block, and only that block.
        async with asyncio.timeout(None) as limit:
            entered.limits[run.id] = limit
            try:
                yield
            finally:
                entered.limits.pop(run.id, None)
    except TimeoutError:
        if not limit.expired():  # the block's own
            raise
        raise pressed from None
    # Pressed since the last look: Prefect refuses any other end, and would say Cancelling for ever, while whoever has
    # called the flow went on with what it returned, and a Retry would do it again.
    if await _told_to_cancel([run.id]):
        raise pressed


async def _look(entered: Entered) -> None:
    """Until it is cancelled itself."""
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        told = await _told_to_cancel(list(entered.limits))
        if entered.closing:
            continue
        for flow_run_id in told:
            if limit := entered.limits.pop(flow_run_id, None):
                try:
                    limit.reschedule(asyncio.get_running_loop().time())
                except RuntimeError as error:  # it has ended, or is ending; the others are still to be looked after
                    get_logger("whitney.cancelling").warning("Cancel comes too late for %s: %s", flow_run_id, error)


async def _told_to_cancel(flow_run_ids: Collection[UUID]) -> list[UUID]:
    """None where Prefect does not answer: it is asked again soon."""
    if not flow_run_ids:
        return []
    told = FlowRunFilterStateType(any_=[StateType.CANCELLING, StateType.CANCELLED])
    wanted = FlowRunFilter(id=FlowRunFilterId(any_=list(flow_run_ids)), state=FlowRunFilterState(type=told))
    try:
        async with get_client() as api:
            return [run.id for run in await api.read_flow_runs(flow_run_filter=wanted)]
    except Exception as error:  # of whatever kind: a run is not worth less for it
        get_logger("whitney.cancelling").debug("cannot tell whether Cancel was pressed: %s", error)
        return []
