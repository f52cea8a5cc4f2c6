"""What a new attempt does about the earlier ones of its flow run. The newest wins: it was asked for last.

An earlier attempt may have left a session open (its machine went, or nothing was there to run its hook), and may even
still be at work: Retry can be pressed twice, or on a run that only looks dead.
"""

from __future__ import annotations

import asyncio

from filelock import FileLock, Timeout
from prefect.logging import get_run_logger

from flows.config import ConfigError
from flows.lifecycle import HOOK_DEADLINE_S, tell
from tasks.run_folder import RunFolder
from whitney.client import WhitneyClient
from whitney.errors import WhitneyError
from whitney.labels import FLOW_RUN
from whitney.lifecycle import close_sessions, could_not_close

# An earlier attempt whose run has been cancelled notices at its next answer, then closes its session.
HANDOVER_S = 120.0
LOOK_EVERY_S = 0.2


async def end_earlier_attempts(client: WhitneyClient, flow_run_id: str, attempt: int) -> None:
    """Cancel and close what earlier attempts have left open: it is billed, and nobody will ever use it.

    Of this attempt too: nothing is open yet that this process has opened, and a run that was suspended and resumed has
    the same number. One that cannot be closed is told, and does not stop this attempt: the reaper goes on trying.
    """
    try:
        verdicts = await asyncio.to_thread(
            close_sessions,
            client.settings,
            label=(FLOW_RUN, flow_run_id),
            attempts_up_to=attempt,
            deadline_s=HOOK_DEADLINE_S,
        )
    except WhitneyError as error:
        tell(could_not_close(f"sessions of earlier attempts of {flow_run_id}", str(error)), closed=False)
        return
    for verdict in verdicts:
        tell(f"left by an earlier attempt: {verdict.message}", closed=verdict.closed)


async def hold(folder: RunFolder) -> FileLock:
    """Take the run folder for this attempt, once an earlier one that is still at work has given it up.

    The lock goes with the process that holds it, however that ends.

    Raises:
        ConfigError: another process still holds it after `HANDOVER_S`.
    """
    lock = folder.lock()
    deadline = asyncio.get_running_loop().time() + HANDOVER_S
    told = False
    while True:
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
        if not told:
            get_run_logger().warning("an earlier attempt still holds %s; waiting until it has ended", folder.path)
            told = True
        await asyncio.sleep(LOOK_EVERY_S)
