"""What a new attempt does about the earlier ones of its flow run. The newest wins: it was asked for last.

An earlier attempt may have left a session open (its machine went, or nothing was there to run its hook), and may even
still be at work: Retry can be pressed twice, or on a run that only looks dead.
"""

from __future__ import annotations

import asyncio
from typing import Protocol
from uuid import UUID

from filelock import FileLock, Timeout
from prefect.client.orchestration import get_client
from prefect.exceptions import Abort

from flows.closing import end_sessions
from flows.config import ConfigError
from flows.durable.telling import warn
from tasks.run_folder import RunFolder
from whitney.client import WhitneyClient
from whitney.errors import WhitneyError
from whitney.labels import ATTEMPT, FLOW_RUN, PROCESS, ROOT_ATTEMPT, ROOT_FLOW_RUN

# An earlier attempt whose run has been cancelled notices at its next answer, then closes its session.
HANDOVER_S = 120.0
LOOK_EVERY_S = 1.0


class Beginner(Protocol):
    """A process that begins on a flow run: a training flow's `SessionScope`, or a pipeline."""

    @property
    def flow_run_id(self) -> str:
        """The flow run."""
        ...

    @property
    def attempt(self) -> int:
        """Its run count."""
        ...

    @property
    def create_key(self) -> str:
        """Names the process."""
        ...


async def take_over(client: WhitneyClient, folder: RunFolder, scope: Beginner, *, whole_tree: bool = False) -> FileLock:
    """End what earlier attempts have left open, and take the run folder once their processes have let go of it.

    The lock goes with the process that holds it, however that ends. Sessions are looked for again while it is waited
    for: an earlier attempt that is only beginning may open one yet. With `whole_tree` they are those of all training
    flows that the flow run calls.

    Raises:
        ConfigError: another process still holds the folder after `HANDOVER_S`.
    """
    async with get_client() as api:
        await api.update_flow_run_labels(UUID(scope.flow_run_id), {PROCESS: scope.create_key})
    lock = folder.lock()
    deadline = asyncio.get_running_loop().time() + HANDOVER_S
    waiting = False
    while True:
        await _end_earlier_attempts(client, scope, whole_tree)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            if asyncio.get_running_loop().time() > deadline:
                raise ConfigError(
                    f"another process has been at work on this run for the last {HANDOVER_S:g} s (it holds "
                    f"{lock.lock_file}): end it, then press Retry again"
                ) from None
        else:
            return lock
        if not waiting:
            warn(f"an earlier attempt still holds {folder.path}; waiting until it has ended")
            waiting = True
        await asyncio.sleep(LOOK_EVERY_S)


async def _end_earlier_attempts(client: WhitneyClient, scope: Beginner, whole_tree: bool) -> None:
    """Cancel and close what earlier attempts have left open: it is billed, and nobody will ever use it.

    Of this attempt too: nothing is open yet that this process has opened, and a run that was suspended and resumed has
    the same number. One that cannot be closed is told, and does not stop this attempt: the reaper goes on trying.
    """
    await asyncio.to_thread(
        end_sessions,
        client.settings,
        scope.flow_run_id,
        label=(ROOT_FLOW_RUN if whole_tree else FLOW_RUN, scope.flow_run_id),
        attempts_up_to=scope.attempt,
        attempt_label=ROOT_ATTEMPT if whole_tree else ATTEMPT,
        whose="left by an earlier attempt: ",
    )


async def give_way(error: BaseException | None, scope: Beginner) -> None:
    """Where a newer process has cancelled this one's runs, end without a word on the flow run that both share.

    Failed would be said over the newer one's Running, for as long as that trains: the reaper would take its session
    for a dead one's, and a person would press Retry once more.

    Raises:
        Abort: Prefect's own: this process ends, and the state is left to the newer one.
    """
    if not isinstance(error, WhitneyError):
        return
    try:
        async with get_client() as api:
            newest = (await api.read_flow_run(UUID(scope.flow_run_id))).labels.get(PROCESS)
    except Exception as unknown:  # of whatever kind: the error itself is what matters then
        warn(f"cannot ask Prefect whether a newer attempt has begun: {unknown}")
        return
    if newest != scope.create_key:
        warn(f"attempt {scope.attempt} gives way to a newer one: {error}")
        raise Abort("a newer attempt has begun") from error
