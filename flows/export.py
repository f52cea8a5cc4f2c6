"""Export: the adapter as a PEFT folder on the caller's disk; a persisted subflow, so that a Retry adopts it."""

from __future__ import annotations

import asyncio
import hashlib
import tarfile
import zlib
from pathlib import Path

from flows.durable.attempt import Attempt
from flows.durable.outcome import ExportOutcome, Start
from flows.lifecycle import block_flow
from tasks.events import emit
from tasks.operations import export_lora

ADAPTER_WEIGHTS = "adapter_model.safetensors"


@block_flow("export", run_name="export adapter")
async def export(attempt: Attempt, start: Start) -> ExportOutcome:
    """Export the run's adapter, fetch it, unpack it into the run folder.

    Raises:
        ValueError: the archive is not a PEFT adapter, or would write outside its folder.
    """
    policy = await attempt.policy(start)
    artifact_id = (await export_lora(policy)).result["artifact_id"]
    archive = attempt.folder.path / "adapter.tar.gz"
    await attempt.client.download_artifact(artifact_id, archive)
    digest = await asyncio.to_thread(unpack_adapter, archive, attempt.folder.adapter_dir)
    outcome = ExportOutcome(
        state_id=start.state_id,
        artifact_id=artifact_id,
        path=str(attempt.folder.adapter_dir),
        sha256=digest,
        attempt=attempt.scope.attempt,
        usage=attempt.scope.meter.take(),
    )
    emit("exported", path=outcome.path, sha256=digest)
    return outcome


def unpack_adapter(archive: Path, folder: Path) -> str:
    """Unpack a PEFT archive and return the SHA-256 of its weights.

    Raises:
        ValueError: as `export`.
        OSError: it cannot be read, or there is no room to unpack it; names where.
    """
    try:
        with tarfile.open(archive, "r:gz") as tar:
            tar.extractall(folder, filter="data")
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # the disk's fault, and not the archive's
            raise OSError(error.errno, error.strerror, error.filename or str(folder)) from error
        raise ValueError(f"{archive}: not a readable adapter archive: {error}") from error
    weights = folder / ADAPTER_WEIGHTS
    if not weights.is_file():
        raise ValueError(f"{archive}: holds no {ADAPTER_WEIGHTS}, so it is not a PEFT adapter")
    return hashlib.sha256(weights.read_bytes()).hexdigest()
