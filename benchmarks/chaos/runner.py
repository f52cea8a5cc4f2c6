"""What a Prefect runner does around a flow run's process, and what a person does in the UI: Cancel, and Retry.

The real runner starts an interpreter that imports everything for each attempt (3 s); this one forks. It is given the
flow run as it was when it was picked up, and hands the hooks just that, as `prefect.runner` does.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from multiprocessing.process import BaseProcess
from typing import Any
from uuid import UUID

import orjson
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import FlowRun, State
from prefect.states import AwaitingRetry, Cancelled, Cancelling, Crashed, Pending, Scheduled

from benchmarks.chaos.child import Order, flow_of, run_attempt, run_hook
from benchmarks.chaos.stand import Stand

LONGEST_ATTEMPT_S = 90.0
GRACE_S = 30.0
"""What `prefect.runner` leaves a process between SIGTERM and SIGKILL."""

LOOK_EVERY_S = 0.01

_FORK = multiprocessing.get_context("forkserver")


class StuckError(RuntimeError):
    """An attempt that did not end."""


def prepare_forks() -> None:
    """Have the server that forks import what every attempt needs; before the first process of this interpreter."""
    _FORK.set_forkserver_preload(["benchmarks.chaos.child"])


@dataclass(slots=True)
class Attempt:
    """A process at work on a flow run, and the flow run as the runner knew it when it started the process."""

    order: Order
    picked_up: FlowRun
    process: BaseProcess
    began: float = field(default_factory=time.monotonic)
    cancelled: bool = False
    told_to_end_at: float | None = None
    unheard: bool = False
    _acted: int = 0

    def orders_from_outside(self) -> list[str]:
        """What its journal asks for since the last look: sigterm, cancel."""
        lines = journal(self.order)
        new, self._acted = lines[self._acted :], len(lines)
        mine = [line for line in new if line["what"] == "fired" and line["attempt"] == self.order.attempt]
        return [line["action"] for line in mine]


def journal(order: Order) -> list[dict[str, Any]]:
    """What all attempts of the scenario have written down so far."""
    path = order.folder / "journal.jsonl"
    # The last line may just be being written.
    return [orjson.loads(line) for line in path.read_bytes().split(b"\n")[:-1]] if path.exists() else []


class Runner:
    """Runs attempts of flow runs against one stand."""

    def __init__(self, api: SyncPrefectClient, stand: Stand) -> None:
        self._api = api
        self._stand = stand

    def create(self, algorithm: str, config: dict[str, Any]) -> UUID:
        """A flow run that waits to be picked up."""
        return self._api.create_flow_run(flow_of(algorithm), parameters={"config": config}, state=Scheduled()).id

    def state(self, flow_run_id: UUID) -> State[Any]:
        """The flow run's state."""
        state = self._api.read_flow_run(flow_run_id).state
        assert state is not None
        return state

    def press_retry(self, flow_run_id: UUID) -> None:
        """What the UI's button posts."""
        self._api.set_flow_run_state(flow_run_id, AwaitingRetry(), force=True)

    def start(self, order: Order) -> Attempt:
        """Pick the flow run up, and start its process."""
        picked_up = self._api.read_flow_run(order.flow_run_id)
        self._api.set_flow_run_state(order.flow_run_id, Pending())
        order = replace(order, gateway_pid=self._stand.gateway.pid)
        process = _FORK.Process(target=run_attempt, args=(order,))
        process.start()
        return Attempt(order, picked_up, process)

    def wait(self, *attempts: Attempt, until: Callable[[], bool] | None = None) -> None:
        """Wait until the processes have ended (or `until` holds), and see to the gateway meanwhile.

        Raises:
            StuckError: one did not end.
        """
        while any(attempt.process.exitcode is None for attempt in attempts):
            self._stand.look()
            for attempt in attempts:
                for action in attempt.orders_from_outside():
                    self._interrupt(attempt, action)
                if attempt.told_to_end_at is not None and time.monotonic() - attempt.told_to_end_at > GRACE_S:
                    attempt.unheard = True
                    attempt.process.kill()
                if time.monotonic() - attempt.began > LONGEST_ATTEMPT_S:
                    for stuck in attempts:
                        stuck.process.kill()
                    raise StuckError(f"attempt {attempt.order.attempt} is at work for {LONGEST_ATTEMPT_S:g} s")
            if until is not None and until():
                return
            time.sleep(LOOK_EVERY_S)
        self._stand.look()

    def _interrupt(self, attempt: Attempt, action: str) -> None:
        if action == "cancel":
            attempt.cancelled = True
            self._api.set_flow_run_state(attempt.order.flow_run_id, Cancelling())
        if action in {"cancel", "sigterm"}:
            attempt.told_to_end_at = time.monotonic()
            attempt.process.terminate()

    def settle(self, attempt: Attempt, *, hook: bool = True) -> list[BaseProcess]:
        """Report how a process has ended if it could not, and start the hook that this calls for; its process."""
        order = attempt.order
        if attempt.cancelled:
            hooked = self._hook(order, self._api.read_flow_run(order.flow_run_id), Cancelling())
            hooked.join()
            self._api.set_flow_run_state(order.flow_run_id, Cancelled())
            return [hooked]
        if self.state(order.flow_run_id).is_final():
            return []
        crashed: State[Any] = Crashed(message=f"Process exited with status code: {attempt.process.exitcode}.")
        self._api.set_flow_run_state(order.flow_run_id, crashed)
        return [self._hook(order, attempt.picked_up, crashed)] if hook else []

    def _hook(self, order: Order, flow_run: FlowRun, state: State[Any]) -> BaseProcess:
        process = _FORK.Process(target=run_hook, args=(replace(order, faults=()), flow_run, state))
        process.start()
        return process
