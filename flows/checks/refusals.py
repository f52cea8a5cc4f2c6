"""What a provider, a model or a teacher rules out: said before anything is allocated, with the field to change."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

import models
from algorithms import ALGORITHMS, require_losses
from flows.checks.money import require_prices
from flows.config import ConfigError, FlowConfig
from tasks.rendering import Renderer
from whitney.client import WhitneyClient
from whitney.errors import NotFoundError
from whitney.types import CapabilityRow


@contextmanager
def as_config_error() -> Iterator[None]:
    """The loss table, the registry and the rewards raise plain ValueErrors about what the configuration asked for."""
    try:
        yield
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(str(error)) from error


def check_options(algorithm: str, config: FlowConfig) -> None:
    """What can be refused from the configuration alone: losses the provider lacks, options it has no way to take,
    a budget of money without a price.

    Raises:
        ValueError: names the field, the value and the way out.
    """
    require_losses(ALGORITHMS[algorithm], config.model.provider)
    config.check()
    require_prices(config.budget)


def capability_row(rows: Sequence[CapabilityRow], config: FlowConfig, renderer: Renderer) -> CapabilityRow:
    """The row of the model that is to be trained.

    Raises:
        ConfigError: not served, too high a LoRA rank, or another tokenizer.
    """
    row = _served(rows, "model", config.model.provider, config.model.name)
    _check_rank(row, "lora.rank", config.lora.rank)
    if row.tokenizer_sha256 and row.tokenizer_sha256 != renderer.tokenizer_sha256:
        raise ConfigError(
            f"the tokenizer of {renderer.model_name!r} is not the one {row.provider}/{row.model} was loaded with: "
            "token ids would mean other words. Set model.tokenizer to the model's own folder"
        )
    return row


def teacher_row(
    rows: Sequence[CapabilityRow], config: FlowConfig, renderer: Renderer, student: CapabilityRow
) -> CapabilityRow | None:
    """The row of the teacher's model, None for an algorithm without one.

    Raises:
        ConfigError: not served, without `logprobs`, or with a tokenizer that is not the student's, or not known to be.
    """
    teacher = getattr(config, "teacher", None)
    if teacher is None:
        return None
    row = _served(rows, "teacher", teacher.provider or config.model.provider, teacher.name or config.model.name)
    _check_rank(row, "teacher.rank", teacher.rank or config.lora.rank)
    missing = sorted({"save_weights_for_sampler", "logprobs"} - set(row.operations))
    if missing:
        raise ConfigError(f"teacher.name = {row.model!r}: {row.provider} does not advertise {', '.join(missing)}")
    if (row.provider, row.model) != (student.provider, student.model):
        _check_same_tokenizer(row, renderer)
    return row


async def require_weights(client: WhitneyClient, config: FlowConfig, not_there_yet: Collection[str] = ()) -> None:
    """Look for the states and adapters that runs are to start from: a misspelt one would be found with a session open.

    Those `not_there_yet` are not looked for.

    Raises:
        ConfigError: the server has no such state or artifact, or the state is another model's.
    """
    own, teacher = config.model, getattr(config, "teacher", None)
    wanted = [("model.initial_", own.initial_state_id, own.initial_artifact_id, own.name)]
    if teacher is not None:
        wanted.append(("teacher.", teacher.state_id, teacher.artifact_id, teacher.name or own.name))
    for prefix, state_id, artifact_id, model in wanted:
        field, name = ("state_id", state_id) if state_id else ("artifact_id", artifact_id)
        try:
            if state_id and state_id not in not_there_yet:
                found = (await client.get_state(state_id)).model
                if found != model:
                    raise ConfigError(f"{prefix}{field} = {name!r}: that state is of {found}, not of {model}")
            elif artifact_id:
                await client.require_artifact(artifact_id)
        except NotFoundError as error:
            raise ConfigError(f"{prefix}{field} = {name!r}: {error}") from error


def _check_same_tokenizer(row: CapabilityRow, renderer: Renderer) -> None:
    """A teacher scores token ids. With another tokenizer they are other words, and the distillation is noise."""
    fingerprint = row.tokenizer_sha256
    if not fingerprint:
        try:
            fingerprint = Renderer(models.resolve(row.model)).tokenizer_sha256
        except (ValueError, OSError) as error:
            raise ConfigError(
                f"teacher.name = {row.model!r}: the endpoint does not say which tokenizer it has, and it is not known "
                f"here ({error}); a teacher must share the student's tokenizer"
            ) from error
    if fingerprint != renderer.tokenizer_sha256:
        raise ConfigError(
            f"teacher.name = {row.model!r}: its tokenizer is not that of {renderer.model_name!r}, so the student's "
            "token ids would mean other words to it; choose a teacher of the same family"
        )


def _served(rows: Sequence[CapabilityRow], section: str, provider: str, model: str) -> CapabilityRow:
    row = next((row for row in rows if (row.provider, row.model) == (provider, model)), None)
    if row is None:
        served = ", ".join(f"{row.provider}/{row.model}" for row in rows) or "nothing"
        raise ConfigError(
            f"{section}.provider = {provider!r}, {section}.name = {model!r}: not served here; this gateway serves "
            f"{served}"
        )
    return row


def _check_rank(row: CapabilityRow, field: str, rank: int) -> None:
    if rank > row.max_lora_rank:
        raise ConfigError(f"{field} = {rank}: {row.provider}/{row.model} takes at most {row.max_lora_rank}")
