"""Keep a session alive while its flow lives: an endpoint closes one that has gone silent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from whitney.client import WhitneyClient
from whitney.errors import ConflictError, NotFoundError, WhitneyError

logger = logging.getLogger(__name__)

LONGEST_S = 60.0
"""The longest pause between two beats, where the endpoint's TTL does not ask for a shorter one."""


def pause_s(ttl_s: float | None) -> float:
    """Seconds between two beats of a session that expires after `ttl_s` of silence; None or 0: never.

    A third of the TTL: two beats in a row may be lost before the session is.
    """
    return min(LONGEST_S, ttl_s / 3) if ttl_s else LONGEST_S


@asynccontextmanager
async def beat(
    client: WhitneyClient, session_id: str, *, every_s: float | None = None, ttl_s: float | None = None
) -> AsyncIterator[None]:
    """Beat a session in the background while the block runs. A beat that fails is logged, and the next one comes.

    Args:
        client: of the endpoint.
        session_id: the session.
        every_s: seconds between two beats; by default as often as `ttl_s` asks for.
        ttl_s: the session's own `ttl_s`, as the endpoint has answered it.
    """
    every_s = pause_s(ttl_s) if every_s is None else every_s
    task = asyncio.create_task(_beat(client, session_id, every_s), name=f"whitney-heartbeat-{session_id}")
    task.add_done_callback(report_order_to_stop)
    try:
        yield
    finally:
        task.cancel()
        # Not `await task`: its CancelledError could not be told from one that is meant for the block itself.
        await asyncio.wait([task])


def report_order_to_stop(task: asyncio.Task[None]) -> None:
    """For a task in the background: a signal's exception may land in it, and nobody awaits it; so the loop is told."""
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, Exception):
        task.get_loop().call_exception_handler(
            {"message": "a task in the background was interrupted", "exception": error}
        )


async def _beat(client: WhitneyClient, session_id: str, every_s: float) -> None:
    while True:
        await asyncio.sleep(every_s)
        try:
            await client.heartbeat(session_id)
        except (ConflictError, NotFoundError) as error:
            logger.warning("session %s is gone, and is beaten no more: %s", session_id, error)
            return
        except WhitneyError as error:
            logger.warning("heartbeat of session %s failed: %s", session_id, error)
