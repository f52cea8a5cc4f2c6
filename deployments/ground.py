"""What deployments stand on: work pool, session limit, the credentials' block type."""

from __future__ import annotations

from typing import cast

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import GlobalConcurrencyLimitCreate, GlobalConcurrencyLimitUpdate, WorkPoolCreate
from prefect.exceptions import ObjectNotFound

from deployments.changes import Change, Verb
from deployments.names import SESSION_LIMIT, WORK_POOL
from tasks.credentials import WhitneyCredentials
from whitney.settings import WhitneySettings

POOL_TYPE = "process"
SESSIONS = 2
"""Sessions at once, where nobody has said how many: a teacher that has its own needs two."""


def make_work_pool(api: SyncPrefectClient, *, dry_run: bool = False) -> Change:
    """A pool for workers on machines of one's own; one that is there is left as it is, whatever its type."""
    try:
        return Change("work pool", WORK_POOL, "unchanged", (api.read_work_pool(WORK_POOL).type,))
    except ObjectNotFound:
        if not dry_run:
            api.create_work_pool(WorkPoolCreate(name=WORK_POOL, type=POOL_TYPE))
        return Change("work pool", WORK_POOL, "created", (POOL_TYPE,))


def make_session_limit(api: SyncPrefectClient, sessions: int | None, *, dry_run: bool = False) -> Change:
    """How many sessions are open at once; a limit that is there keeps its number unless another is asked for."""
    try:
        there = api.read_global_concurrency_limit_by_name(SESSION_LIMIT)
    except ObjectNotFound:
        limit = sessions or SESSIONS
        if not dry_run:
            api.create_global_concurrency_limit(GlobalConcurrencyLimitCreate(name=SESSION_LIMIT, limit=limit))
        return Change("session limit", SESSION_LIMIT, "created", (f"{limit} at once",))
    if sessions is None or sessions == there.limit:
        return Change("session limit", SESSION_LIMIT, "unchanged", (f"{there.limit} at once",))
    if not dry_run:
        api.update_global_concurrency_limit(SESSION_LIMIT, GlobalConcurrencyLimitUpdate(limit=sessions))
    return Change("session limit", SESSION_LIMIT, "changed", (f"{there.limit} → {sessions} at once",))


def make_credentials_type(api: SyncPrefectClient, *, dry_run: bool = False) -> Change:
    """The kind of block that an address and a key are kept in; the UI then has a form for it."""
    slug, name = WhitneyCredentials.get_block_type_slug(), "Whitney Credentials"
    try:
        api.read_block_type_by_slug(slug)
        verb: Verb = "unchanged"
    except ObjectNotFound:
        verb = "created"
    if not dry_run:
        WhitneyCredentials.register_type_and_schema()  # brings one of an earlier version up to date
    return Change("block type", name, verb)


def make_credentials(name: str, settings: WhitneySettings, *, dry_run: bool = False) -> Change:
    """A block with the address and the key of an endpoint. The key is compared and stored, and never told.

    Raises:
        ValueError: Prefect takes no such name.
    """
    wanted = WhitneyCredentials(base_url=settings.base_url, api_key=settings.api_key)
    there = _stored(name)
    if there is None:
        change = Change("credentials", name, "created", (wanted.base_url,))
    elif there.base_url != wanted.base_url:
        change = Change("credentials", name, "changed", (f"{there.base_url} → {wanted.base_url}",))
    elif there.api_key != wanted.api_key:
        change = Change("credentials", name, "changed", ("another key",))
    else:
        return Change("credentials", name, "unchanged", (wanted.base_url,))
    if not dry_run:
        wanted.save(name, overwrite=True)
    return change


def _stored(name: str) -> WhitneyCredentials | None:
    try:
        return cast(WhitneyCredentials, WhitneyCredentials.load(name))
    except ValueError:  # Prefect's word for a block that is not there
        return None
