"""What runs in a process of its own: one attempt of a flow, as a worker runs it, or the hook, as a runner does.

The processes are forked from a server that has imported all this (`multiprocessing`'s forkserver), so that none of them
pays for the imports. Nothing of the product is replaced here but the transport of its HTTP clients, which is watched;
and a few functions are told apart in the journal: which part of the flow a request belongs to.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial, partialmethod, wraps
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import UUID

import psutil
from prefect.client.schemas.objects import FlowRun, State
from prefect.engine import handle_engine_signals
from prefect.flow_engine import load_flow_run, run_flow
from prefect.flows import Flow
from prefect.settings import (
    PREFECT_API_URL,
    PREFECT_FLOWS_HEARTBEAT_FREQUENCY,
    PREFECT_HOME,
    PREFECT_LOCAL_STORAGE_PATH,
    PREFECT_LOGGING_TO_API_ENABLED,
    temporary_settings,
)

import flows
import flows.evaluate
import flows.export
import whitney.heartbeat
from benchmarks.chaos import broken
from benchmarks.chaos.configs import PIPELINE
from benchmarks.chaos.scenario import Fault
from benchmarks.chaos.tap import Journal, Tap, WatchedSyncTransport, WatchedTransport
from flows.durable.attempt import Attempt
from flows.durable.cycles import Cycles
from flows.durable.outcome import Block, BlockOutcome, Start
from tasks.run_folder import RunFolder
from whitney.client import WhitneyClient
from whitney.lifecycle import LifecycleClient
from whitney.retry import RetryPolicy

BEAT_S = 0.2
"""Seconds between two heartbeats, so that a flow of two seconds has some to lose."""

LONGEST_PAUSE_S = 1.0
"""Of the client between two tries, so that a gateway that is started again is not waited for longer than it takes."""


@dataclass(frozen=True, slots=True)
class Order:
    """All that a process must know. The key stays out of `repr`."""

    algorithm: str
    flow_run_id: UUID
    attempt: int
    folder: Path
    prefect_api_url: str
    prefect_home: Path
    base_url: str
    api_key: str = field(repr=False)
    gateway_pid: int = 0
    faults: tuple[Fault, ...] = ()
    client: str | None = None


def flow_of(algorithm: str) -> Flow[..., Any]:
    """The flow of an algorithm, or the pipeline's."""
    return flows.pipeline if algorithm == PIPELINE else flows.FLOWS[algorithm]


def run_attempt(order: Order) -> None:
    """Run the flow run as `python -m prefect.flow_engine` does in a worker's process."""
    with _surroundings(order) as tap:
        _mark_parts(tap, in_pipeline=order.algorithm == PIPELINE)
        flow = flow_of(order.algorithm)
        flow_run = load_flow_run(order.flow_run_id)
        with handle_engine_signals(flow_run.id):
            asyncio.run(run_flow(flow, flow_run=flow_run))  # type: ignore[arg-type] # async flows return a coroutine


def run_hook(order: Order, flow_run: FlowRun, state: State[Any]) -> None:
    """Run the flow's hooks as the runner does when the process is gone."""
    with _surroundings(order):
        flow = flow_of(order.algorithm)
        hooks = flow.on_cancellation_hooks if state.is_cancelling() else flow.on_crashed_hooks
        for hook in hooks:
            hook(flow=flow, flow_run=flow_run, state=state)


@contextmanager
def _surroundings(order: Order) -> Iterator[Tap]:
    """Log, working directory, endpoint, Prefect's settings, and watched clients."""
    log = os.open(order.folder / f"attempt-{order.attempt}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, sys.stdout.fileno())
    os.dup2(log, sys.stderr.fileno())
    os.chdir(order.folder)
    os.environ.update(WHITNEY_BASE_URL=order.base_url, WHITNEY_API_KEY=order.api_key)
    whitney.heartbeat.LONGEST_S = BEAT_S
    tap = _watch(order)
    if order.client is not None:
        broken.CLIENTS[order.client]()
    settings = {
        PREFECT_API_URL: order.prefect_api_url,
        PREFECT_HOME: order.prefect_home,
        PREFECT_LOCAL_STORAGE_PATH: order.prefect_home / "storage",
        PREFECT_LOGGING_TO_API_ENABLED: False,
        PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None,
    }
    with temporary_settings(settings):
        yield tap


def _watch(order: Order) -> Tap:
    """Put the tap between the clients and the wire, for the rest of this process; nobody waits longer than need be."""
    journal = Journal(order.folder / "journal.jsonl", order.attempt)
    tap = Tap(journal, order.faults, partial(_strike, order))
    patch.object(RetryPolicy, "__init__", partialmethod(RetryPolicy.__init__, longest_s=LONGEST_PAUSE_S)).start()
    for client, transport in ((WhitneyClient, WatchedTransport(tap)), (LifecycleClient, WatchedSyncTransport(tap))):
        patch.object(client, "__init__", partialmethod(client.__init__, transport=transport)).start()
    return tap


def _strike(order: Order, fault: Fault) -> None:
    """End a process, now. SIGTERM and cancel come from outside: the campaign reads of them in the journal."""
    if fault.action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault.action == "gateway_kill":
        os.kill(order.gateway_pid, signal.SIGKILL)
    elif fault.action == "engine_kill":
        engine_of(order.gateway_pid).kill()


def engine_of(gateway_pid: int) -> psutil.Process:
    """The gateway's child that holds the weights."""
    children = psutil.Process(gateway_pid).children()
    return max(children, key=lambda child: child.memory_info().rss)


def _mark_parts(tap: Tap, *, in_pipeline: bool) -> None:
    """Tell the journal what the flow is at, and where it can be hit between two requests."""

    def part(attempt: Attempt, name: str) -> str:
        return f"{attempt.folder.path.name} {name}" if in_pipeline else name

    _mark_part(flows.evaluate.evaluate, tap.journal, lambda attempt, when, *_: part(attempt, f"evaluate {when}"))
    _mark_part(flows.export.export, tap.journal, lambda attempt, *_: part(attempt, "export"))
    begin, outcome, adopt = Cycles.begin, Cycles.outcome, Attempt.adopt

    async def begun(attempt: Attempt, block: Block, start: Start) -> Cycles:
        tap.journal.begin(part(attempt, f"block {block.index}"))
        return await begin(attempt, block, start)

    def ended(cycles: Cycles) -> BlockOutcome:
        tap.moment("outcome", "before")
        found = outcome(cycles)
        tap.journal.write("done")
        tap.moment("outcome", "after")
        return found

    async def adopted(attempt: Attempt, block: Block, found: BlockOutcome) -> BlockOutcome:
        tap.moment("adopt", "before")
        found = await adopt(attempt, block, found)
        tap.moment("adopt", "after")
        return found

    patch.object(Cycles, "begin", begun).start()
    patch.object(Cycles, "outcome", ended).start()
    patch.object(Attempt, "adopt", adopted).start()
    for name, moment in (("write_summary", "summary"), ("write_stages", "stages")):
        patch.object(RunFolder, name, _at_moment(tap, moment, getattr(RunFolder, name))).start()


def _at_moment(tap: Tap, moment: str, write: Callable[[RunFolder, Any], None]) -> Callable[[RunFolder, Any], None]:
    def written(folder: RunFolder, content: Any) -> None:
        tap.moment(moment, "before")
        write(folder, content)
        tap.moment(moment, "after")

    return written


def _mark_part(flow: Flow[..., Any], journal: Journal, name: Callable[..., str]) -> None:
    """Mark a subflow's beginning and end, where it really runs: one that is adopted is not called."""
    real = flow.fn

    @wraps(real)
    async def marked(*arguments: Any, **named: Any) -> Any:
        journal.begin(name(*arguments, **named))
        found = await real(*arguments, **named)
        journal.write("done")
        return found

    flow.fn = marked
