"""What `whitney deploy` does on the server, one thing after another."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound

from cli.deploy_options import Wishes
from cli.failures import UsageError
from deployments.automations import alerts, automate, zombies
from deployments.changes import Change
from deployments.ground import make_credentials, make_credentials_type, make_session_limit, make_work_pool
from deployments.names import REAPER
from deployments.prefect_file import Entry, shipped
from deployments.register import ENVIRONMENT, find, register
from deployments.results import make_result_storage
from tasks.user_modules import why_not_from
from whitney.settings import resolve_settings

BLOCK_NAME = re.compile(r"[a-z0-9-]+")
NO_ALERTS = "without --notify TYPE/NAME nobody is told"


def changes(entries: Sequence[Entry], wishes: Wishes) -> Iterator[Change]:
    """Make it so, and tell each thing as it is done; what can be refused is refused before the first.

    Whatever is deployed, the reaper is too, if there is none: it closes what a run leaves open that dies with its
    machine.

    Raises:
        UsageError: an option's value is no good, or what it names is not there.
    """
    if hidden := why_not_from(Path.cwd()):
        raise UsageError(f"runs cannot work in this folder: {hidden}")
    if wishes.sessions is not None and wishes.sessions < 1:
        raise UsageError(f"--sessions {wishes.sessions}: at least 1, or no run could ever begin")
    if wishes.results is not None and not wishes.results.is_dir():
        raise UsageError(
            f"--results {wishes.results}: no such folder; make it, or mount the one that the workers share"
        )
    if wishes.credentials is not None and not BLOCK_NAME.fullmatch(wishes.credentials):
        raise UsageError(f"--credentials {wishes.credentials!r}: lower-case letters, digits and '-', as Prefect has it")
    endpoint = resolve_settings() if wishes.credentials not in (None, ENVIRONMENT) else None
    with get_client(sync_client=True) as api:
        block = _notification_block(api, wishes.notify) if wishes.notify else None
        yield made(lambda: make_work_pool(api, dry_run=wishes.dry_run))
        yield made(lambda: make_session_limit(api, wishes.sessions, dry_run=wishes.dry_run))
        if wishes.results:
            yield make_result_storage(api, wishes.results.resolve(), dry_run=wishes.dry_run)
        yield made(lambda: make_credentials_type(api, dry_run=wishes.dry_run))
        if wishes.credentials and endpoint:
            yield make_credentials(wishes.credentials, endpoint, dry_run=wishes.dry_run)
        reaper = [] if find(api, REAPER) else [entry for entry in shipped() if REAPER.endswith(f"/{entry.name}")]
        for entry in (*(one for one in reaper if one not in entries), *entries):
            yield register(
                api,
                entry,
                folder=Path.cwd(),
                activate=wishes.activate,
                credentials=wishes.credentials,
                dry_run=wishes.dry_run,
            )
        yield from _automations(api, block, dry_run=wishes.dry_run)


def made(step: Callable[[], Change]) -> Change:
    """What a step has done. What somebody else has made since it looked, another `whitney deploy` for one, is there."""
    try:
        return step()
    except ObjectAlreadyExists:
        return step()


def _notification_block(api: SyncPrefectClient, notify: str) -> UUID:
    kind, slash, name = notify.partition("/")
    if not (kind and slash and name):
        raise UsageError(f"--notify {notify!r}: write it as TYPE/NAME, e.g. slack-webhook/on-call")
    try:
        block = api.read_block_document_by_name(name, kind, include_secrets=False)
    except ObjectNotFound:
        raise UsageError(
            f"--notify {notify}: no such block; make one in the Prefect UI, under Blocks, or name one that "
            "`prefect block ls` lists"
        ) from None
    if block.block_schema is None or "notify" not in block.block_schema.capabilities:
        raise UsageError(f"--notify {notify}: a block of this type sends no notifications")
    return block.id


def _automations(api: SyncPrefectClient, block: UUID | None, *, dry_run: bool) -> Iterator[Change]:
    yield automate(api, zombies(), dry_run=dry_run)
    if block is not None:
        for alert in alerts(block):
            yield automate(api, alert, dry_run=dry_run)
    else:
        names = [alert.name for alert in alerts(UUID(int=0))]
        there = [name for name in names if api.read_automations_by_name(name)]
        yield from (Change("automation", name, "unchanged") for name in there)
        if len(there) < len(names):
            yield Change("automations", "that tell a person", "left out", (NO_ALERTS,))
