"""Where runs keep what a Retry adopts: a folder that all workers share, known to the Prefect server."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import cast
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient
from prefect.filesystems import LocalFileSystem

from deployments.changes import Change

KIND = "result storage"


def make_result_storage(api: SyncPrefectClient, folder: Path, *, dry_run: bool = False) -> Change:
    """Have every run of this server keep its results in `folder`: an absolute path, the same on all workers.

    It is the server's own default, so no worker has to be told of it; PREFECT_DEFAULT_RESULT_STORAGE_BLOCK in a
    worker's environment comes before it. What lies in a former folder stays readable: a result names its block.
    """
    wanted = LocalFileSystem(basepath=str(folder))
    former = _former(api)
    if former == wanted.basepath:
        return Change(KIND, str(folder), "unchanged")
    if not dry_run:
        # One block a folder: another path in a former folder's block would take that folder's results with it.
        name = f"whitney-results-{sha256(bytes(folder)).hexdigest()[:8]}"
        block_id = cast(UUID, wanted.save(name, overwrite=True))  # no coroutine: nobody is waiting here
        api.update_server_default_result_storage(block_id)
    if former is None:
        return Change(KIND, str(folder), "created")
    return Change(KIND, str(folder), "changed", (f"{former} → {folder}",))


def _former(api: SyncPrefectClient) -> str | None:
    """The folder that is the default now; of storage of another kind, its block's name."""
    block_id = api.read_server_default_result_storage().default_result_storage_block_id
    if block_id is None:
        return None
    block = api.read_block_document(block_id)
    return str(block.data.get("basepath") or block.name)
