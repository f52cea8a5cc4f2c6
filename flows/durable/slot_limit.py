"""The Prefect global concurrency limit that a configuration names."""

from __future__ import annotations

from prefect.client.orchestration import get_client
from prefect.client.schemas.responses import GlobalConcurrencyLimitResponse
from prefect.exceptions import ObjectNotFound

from flows.config import ConfigError


async def require_slots(limit: str, count: int) -> None:
    """Refuse a run that could never have its slots.

    Raises:
        ConfigError: the limit does not exist, or is smaller than what the run needs.
    """
    found = await read_limit(limit)
    if found.active and found.limit < count:
        raise ConfigError(
            f"session_limit = {limit!r} allows {found.limit} open sessions, and this run needs {count} at once; raise "
            f"it: `prefect gcl update {limit} --limit {count}`"
            + (', or set teacher.session = "shared"' if count > 1 else "")
        )


async def read_limit(limit: str) -> GlobalConcurrencyLimitResponse:
    """The limit as it stands.

    Raises:
        ConfigError: it does not exist.
    """
    async with get_client() as api:
        try:
            return await api.read_global_concurrency_limit_by_name(limit)
        except ObjectNotFound:
            raise ConfigError(
                f"session_limit = {limit!r}: this Prefect server has no global concurrency limit of that name; create "
                f"it with `whitney deploy`, or `prefect gcl create {limit} --limit N`"
            ) from None
