"""The adapter on the caller's disk: fetched, looked at, and only then given its name."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import models
from flows.durable.attempt import Attempt
from flows.durable.outcome import ExportOutcome
from flows.durable.telling import warn
from models.adapter import CONFIG_FILE, WEIGHTS_FILE, AdapterFolder
from tasks.adapter import AdapterError, AdapterFacts, Expected, check_adapter
from tasks.model_card import model_card
from tasks.serving import TEMPLATE_FILE, Serving, shared_question
from whitney.errors import NotFoundError


async def deliver(attempt: Attempt, outcome: ExportOutcome, summary: Mapping[str, Any]) -> None:
    """Put the model card beside the adapter, and the chat template where it is not the base model's own.

    What a former attempt exported is fetched again where its folder has gone. A Retry writes the card again: it has
    the totals of all attempts.

    Raises:
        AdapterError, WhitneyError: as `fetch_adapter`.
    """
    folder, config, renderer = attempt.folder.adapter_dir, attempt.config, attempt.inputs.renderer
    if not (folder / WEIGHTS_FILE).is_file():
        try:
            await fetch_adapter(attempt, outcome.artifact_id, outcome.state_id)
        except NotFoundError as error:
            warn(f"{folder} is gone, and so is what it was unpacked from: {error}")
            return
    template = renderer.template if config.model.chat_template or config.model.tokenizer else None
    serving = Serving(
        name=attempt.folder.path.name,
        model=config.model.name,
        rank=config.lora.rank,
        max_tokens=config.sampling.max_tokens,
        stop_token_ids=renderer.stop_token_ids,
        question=shared_question(config.data.source, attempt.folder.path / "heldout.jsonl"),
        template=template is not None,
    )
    attempt.folder.write_beside_adapter("README.md", model_card(attempt.folder.read_config(), summary, serving))
    if template is not None:
        attempt.folder.write_beside_adapter(TEMPLATE_FILE, template)


async def fetch_adapter(attempt: Attempt, artifact_id: str, state_id: str | None) -> tuple[str, AdapterFacts]:
    """Fetch an exported adapter into the run folder; the SHA-256 of its weights, and what was found in it.

    Raises:
        AdapterError: it is not what was trained. Neither the state nor the archive is deleted.
        WhitneyError: it cannot be had; `NotFoundError` where the endpoint no longer has it.
    """
    archive = attempt.folder.path / "adapter.tar.gz"
    await attempt.client.download_artifact(artifact_id, archive)
    config = attempt.config
    expected = Expected(
        model=config.model.name,
        rank=config.lora.rank,
        alpha=config.lora.alpha,
        base=models.present(config.model.name),
    )
    try:
        digest, facts = await asyncio.to_thread(unpack_adapter, archive, attempt.folder.adapter_dir, expected)
    except AdapterError as error:
        raise AdapterError(
            f"{error}. Nothing is lost: state {state_id} holds what was trained, artifact {artifact_id} is kept, and "
            f"{archive} is what came of it. Retry exports again"
        ) from error
    if not facts.trained and any(row.get("operations/optim_step") for row in attempt.rows):
        warn("every B of the exported adapter is zero, although optimizer steps were taken: it changes nothing")
    for unchecked in facts.unchecked:
        warn(f"the exported adapter is sound; not checked: {unchecked}")
    return digest, facts


def unpack_adapter(archive: Path, folder: Path, expected: Expected) -> tuple[str, AdapterFacts]:
    """Unpack a PEFT archive, check what is in it, and give it its name: a folder of that name is always whole.

    Raises:
        AdapterError: it is no adapter archive, or not the one that is expected.
        OSError: it cannot be read, or there is no room to unpack it; names where.
    """
    beside = folder.with_name(f".{folder.name}.new")  # one attempt at a time is at work in a run folder
    shutil.rmtree(beside, ignore_errors=True)  # what a kill has left
    try:
        _extract(archive, beside)
        inside = next((one.parent for one in sorted(beside.rglob(CONFIG_FILE))), beside)
        facts = check_adapter(AdapterFolder(inside), expected)
        with (inside / WEIGHTS_FILE).open("rb") as weights:
            digest = hashlib.file_digest(weights, "sha256").hexdigest()
        _put_in_place(inside, folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return digest, facts


def _extract(archive: Path, folder: Path) -> None:
    try:
        with tarfile.open(archive, "r:gz") as tar:
            tar.extractall(folder, filter="data")
        for file in folder.rglob("*"):
            if file.is_file():
                with file.open("rb") as stream:
                    os.fsync(stream)  # or a power cut after the rename leaves empty files with good names
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # the disk's fault, and not the archive's
            raise OSError(error.errno, error.strerror, error.filename or str(folder)) from error
        raise AdapterError(f"{archive}: not a readable adapter archive: {error}") from error


def _put_in_place(new: Path, folder: Path) -> None:
    """Rename a folder over one of a former attempt, which is moved out of the way first."""
    former = folder.with_name(f".{folder.name}.old")
    shutil.rmtree(former, ignore_errors=True)
    if folder.exists():
        folder.rename(former)
    new.rename(folder)
    shutil.rmtree(former, ignore_errors=True)
