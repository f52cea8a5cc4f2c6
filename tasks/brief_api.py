"""Prefect's API for those who must not wait for it: hooks have seconds before their process is killed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings

ANSWER_S = 3.0
ATTEMPTS = 2


@contextmanager
def brief_api() -> Iterator[SyncPrefectClient]:
    """A synchronous client that gives up after some seconds (8.6 s measured, on a server that never answers).

    Prefect's own tries six times for a minute each, and a cancelled process is killed after half a minute.
    """
    with (
        temporary_settings({PREFECT_CLIENT_MAX_RETRIES: ATTEMPTS - 1}),
        get_client(httpx_settings={"timeout": ANSWER_S}, sync_client=True) as api,
    ):
        yield api
