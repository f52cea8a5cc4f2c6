"""Keep a session alive while its flow lives: an endpoint closes one that has gone silent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from whitney.client import WhitneyClient
from whitney.errors import ConflictError, NotFoundError, WhitneyError

logger = logging.getLogger(__name__)

# The default TTL is 30 minutes: a beat may be lost a dozen times before anybody notices.
EVERY_S = 60.0


@asynccontextmanager
async def beat(client: WhitneyClient, session_id: str, *, every_s: float = EVERY_S) -> AsyncIterator[None]:
    """Beat a session in the background while the block runs. A beat that fails is logged, and the next one comes."""
    task = asyncio.create_task(_beat(client, session_id, every_s), name=f"whitney-heartbeat-{session_id}")
    try:
        yield
    finally:
        task.cancel()
        # Not `await task`: its CancelledError could not be told from one that is meant for the block itself.
        await asyncio.wait([task])


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
