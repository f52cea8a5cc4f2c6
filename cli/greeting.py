"""The first thing that a command asks an endpoint: what it serves. An address that is no Whitney's is found here."""

from __future__ import annotations

import asyncio

from cli.terminal import Say
from whitney.client import WhitneyClient
from whitney.errors import ApiError, ConnectionFailedError, UnauthorizedError
from whitney.settings import WhitneySettings
from whitney.types import CapabilityRow

LONG_S = 3.0
"""After so long somebody who waits wants to know for what."""


async def greeting(settings: WhitneySettings, say: Say) -> list[CapabilityRow]:
    """What an endpoint serves, if it says so within `settings.first_contact_s`; `say` hears of one that takes its time.

    Raises:
        ConfigurationError: it is no Whitney.
        ConnectionFailedError: it is silent, or too slow, or answers with errors.
        UnauthorizedError: it refuses the key.
    """
    within_s = settings.first_contact_s
    impatient = settings.model_copy(update={"retry_deadline_s": within_s})
    waiting = asyncio.get_running_loop().call_later(LONG_S, say, f"Waiting for Whitney at {settings.base_url}")
    try:
        # Not the request's own timeout: a byte now and then would always be in time.
        async with asyncio.timeout(within_s), WhitneyClient(impatient) as client:
            return list((await client.capabilities()).rows)
    except TimeoutError as error:
        raise ConnectionFailedError(
            f"{settings.base_url} does not say within {within_s:g} s what it can do: is WHITNEY_BASE_URL right, and is "
            "the server well? One that wakes slowly is waited for with more seconds in WHITNEY_FIRST_CONTACT_S"
        ) from error
    except UnauthorizedError:
        raise
    except ApiError as error:
        raise ConnectionFailedError(
            f"{settings.base_url} does not answer as Whitney does: is WHITNEY_BASE_URL right? {error}"
        ) from error
    finally:
        waiting.cancel()
