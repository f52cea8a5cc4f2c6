"""A Prefect process worker that lets its flow runs end in order, and says of a run why it cannot be started here.

Prefect's own worker (3.9.1), told to stop, kills its flow runs with SIGKILL: their sessions stay open, and Prefect
shows them as running. A run that is cancelled while its process starts it leaves Cancelling for ever. And where a run's
folder is not on the worker's machine, its flow run says no more than "Process exited with status code: 1".
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import UUID

from anyio.abc import TaskStatus
from prefect.client.schemas.objects import FlowRun, State
from prefect.client.schemas.responses import DeploymentResponse
from prefect.states import Cancelled
from prefect.workers.process import ProcessJobConfiguration, ProcessWorker, ProcessWorkerResult

from tasks.user_modules import is_ours, why_not_from

LOOK_EVERY_S = 0.1
CANCELLING_S = 30
SET_FOLDER = "prefect.deployments.steps.set_working_directory"


class CannotStartHereError(Exception):
    """A flow run cannot be started by this worker; Prefect shows the message with the flow run."""


class OrderlyWorker(ProcessWorker):
    """Prefect's process worker, for the same work pools."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._winding_up = False
        self._at_work: dict[UUID, int | None] = {}

    @classmethod
    def __dispatch_key__(cls) -> str:
        """A name of its own in Prefect's table of classes, where `process` is taken."""
        return "whitney-process"

    async def get_and_submit_flow_runs(self) -> list[FlowRun]:
        """As Prefect's; none any more once it is to stop."""
        return [] if self._winding_up else await super().get_and_submit_flow_runs()

    async def run(
        self,
        flow_run: FlowRun,
        configuration: ProcessJobConfiguration,
        task_status: TaskStatus[int] | None = None,
    ) -> ProcessWorkerResult:
        """As Prefect's, once it is clear that the run can be started here.

        Raises:
            CannotStartHereError: it cannot. Prefect takes that for a crash, with these words.
        """
        if self._winding_up:
            raise CannotStartHereError("the worker is being stopped; Retry starts the run again")
        if flow_run.deployment_id is not None:
            deployment = await self.client.read_deployment(flow_run.deployment_id)
            if why := why_not_here(deployment, configuration.working_dir):
                raise CannotStartHereError(why)
        self._at_work[flow_run.id] = None
        try:
            result = await super().run(flow_run, configuration, _NotesPid(self._at_work, flow_run.id, task_status))
        finally:
            del self._at_work[flow_run.id]
        await self._end_cancelling(flow_run.id)
        return result

    async def _end_cancelling(self, flow_run_id: UUID) -> None:
        """Say Cancelled of a run whose process has ended, if nobody else does.

        A flow that finds itself Cancelling as it begins ends at once. Prefect's runner, if it has not heard of the
        cancellation by then, has no process to kill any more and leaves it at that; if it has, hooks take their time.
        """
        for _ in range(CANCELLING_S):
            if not await self._is_cancelling(flow_run_id):
                return
            await asyncio.sleep(1)
        if await self._is_cancelling(flow_run_id):
            ended: State[None] = Cancelled(message="cancelled as it began")
            await self.client.set_flow_run_state(flow_run_id, ended, force=True)

    async def _is_cancelling(self, flow_run_id: UUID) -> bool:
        state = (await self.client.read_flow_run(flow_run_id)).state
        return state is not None and state.is_cancelling()

    async def wind_up(self, *, closing_s: float, hooks_s: float) -> None:
        """Take no more runs, have those that are at work close their sessions and end, and wait for that.

        Args:
            closing_s: how long they have, before they are killed.
            hooks_s: how long the hooks of those that were killed have.
        """
        self._winding_up = True
        await self._end_runs(signal.SIGTERM, closing_s)
        await self._end_runs(signal.SIGKILL, hooks_s)

    async def _end_runs(self, number: int, patience_s: float) -> None:
        deadline = asyncio.get_running_loop().time() + patience_s
        told: set[int] = set()
        while self._at_work and asyncio.get_running_loop().time() < deadline:
            for pid in {pid for pid in self._at_work.values() if pid is not None} - told:
                told.add(pid)
                _signal_group(pid, number)
            await asyncio.sleep(LOOK_EVERY_S)


class _NotesPid:
    """Between the worker and Prefect: the process id passes by here."""

    def __init__(self, at_work: dict[UUID, int | None], flow_run_id: UUID, task_status: TaskStatus[int] | None) -> None:
        self._at_work = at_work
        self._flow_run_id = flow_run_id
        self._task_status = task_status

    def started(self, value: int | None = None) -> None:
        """Prefect has started the process."""
        self._at_work[self._flow_run_id] = value
        if self._task_status is not None and value is not None:
            self._task_status.started(value)


def why_not_here(deployment: DeploymentResponse, working_dir: Path | None) -> str | None:
    """Why a run of the deployment cannot be started on this machine; None where it can, or only starting it tells.

    Args:
        deployment: as the server has it.
        working_dir: the work pool's or the deployment's `working_dir`, if it has one.
    """
    whose = f"deployment {deployment.name!r}"
    folder, known = _folder(deployment.pull_steps or [], working_dir)
    if not known:
        return None
    if folder is None:
        if "config" not in (deployment.parameters or {}):
            return None
        return (
            f"{whose} names no folder to work in: Prefect would run it in a temporary one, and its run folder would go "
            "with that. Deploy it with `whitney deploy`, from the project's folder"
        )
    if not folder.is_dir():
        return (
            f"{whose} works in {folder}, and this machine has no such folder. Run `whitney deploy` in the project's "
            "folder on this machine, or start the worker on the machine that has it"
        )
    return _why_not_this_code(whose, deployment.entrypoint or "", folder)


def _folder(steps: Sequence[Mapping[str, Any]], working_dir: Path | None) -> tuple[Path | None, bool]:
    """The folder that a run works in, and whether it can be told before: not where a step fetches it."""
    for step in steps:
        if set(step) != {SET_FOLDER}:
            return None, False
        directory = Path(str(step[SET_FOLDER]["directory"])).expanduser()
        if not directory.is_absolute():
            return None, False
        working_dir = directory
    return working_dir, True


def _why_not_this_code(whose: str, entrypoint: str, folder: Path) -> str | None:
    if is_ours(entrypoint) and (hidden := why_not_from(folder)):
        return f"{whose}: {hidden}"
    if missing := _missing_code(entrypoint, folder):
        return f"{whose} runs {entrypoint}, and there is no {missing}: run `whitney deploy` again there"
    return None


def _missing_code(entrypoint: str, folder: Path) -> str | None:
    """What of an entry point, `flows/grpo.py:grpo` or `flows.grpo.grpo`, is not there."""
    if ":" in entrypoint:
        file = folder / entrypoint.rpartition(":")[0]
        return None if file.is_file() else str(file)
    package = entrypoint.partition(".")[0]
    found = find_spec(package) or PathFinder.find_spec(package, [str(folder)])
    return None if found else f"package {package!r} in {folder} nor in the worker's Python"


def _signal_group(pid: int, number: int) -> None:
    """A flow run's process leads a group of its own; where the work pool names a command, it may not."""
    with suppress(ProcessLookupError):
        if os.getpgid(pid) == pid:
            os.killpg(pid, number)
        else:
            os.kill(pid, number)
