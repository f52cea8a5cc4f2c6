"""The adapter on the caller's disk: fetched, looked at, and only then given its name."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import models
from flows.durable.attempt import Attempt
from flows.durable.outcome import ExportOutcome
from flows.durable.telling import warn
from flows.durable.unpacking import unpack_adapter
from models.adapter import WEIGHTS_FILE
from tasks.adapter import AdapterError, AdapterFacts, Expected
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
