"""What finished stages hand on to those to come: outcomes that stand for stages, states that are still there."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from flows.checks.prepare import data_fingerprint
from flows.config import ConfigError
from flows.config.pipeline import PipelineConfig, StageConfig
from flows.config.stages import stage_config
from flows.stages.checks import about
from flows.stages.outcome import StageOutcome, stage_fingerprint
from tasks.run_folder import RunFolder
from whitney.client import WhitneyClient
from whitney.errors import GoneError, NotFoundError


async def require_recorded(pipeline: PipelineConfig, recorded: Sequence[StageOutcome]) -> None:
    """Make sure that outcomes of an earlier pipeline can stand for the first stages of this one.

    Raises:
        ConfigError: they are not of the first stages in their order, or a stage's configuration or data is
            another.
    """
    names = [stage.name for stage in pipeline.stages]
    given = [outcome.stage for outcome in recorded]
    if given != names[: len(given)]:
        raise ConfigError(f"recorded outcomes of {', '.join(given)}: must be of the first stages of {', '.join(names)}")
    for stage, outcome in zip(pipeline.stages, recorded, strict=False):
        if outcome.fingerprint != stage_fingerprint(pipeline, stage):
            raise ConfigError(
                f"stage {stage.name!r} was recorded with another configuration, by the run in {outcome.run_folder}; "
                "undo the change, or start at this stage or before"
            )
        with about(stage):
            now = await asyncio.to_thread(data_fingerprint, stage_config(pipeline, stage))
        if outcome.data_fingerprint not in (now, None):
            raise ConfigError(
                f"stage {stage.name!r} was recorded on other data, by the run in {outcome.run_folder}; start at this "
                "stage or before"
            )


async def require_handed_on(
    pipeline: PipelineConfig, states: Mapping[str, str], folder: Path | None, client: WhitneyClient
) -> None:
    """Make sure that what is finished can still be begun from, by the stages that have not saved a block of their own.

    One that has looks itself for what it still reads (`flows.durable.weights_left`): mostly nothing but that block.

    Args:
        pipeline: all stages.
        states: what those that are finished have saved last, by stage.
        folder: the pipeline's, where it goes on.
        client: of the endpoint.

    Raises:
        ConfigError: a state is gone or damaged; names both stages, and the ways out.
        WhitneyError: the endpoint cannot be asked.
    """
    for stage in pipeline.stages:
        if stage.name in states or (folder is not None and _has_begun(pipeline, stage, folder)):
            continue
        for source in sorted(_sources(pipeline, stage) & states.keys()):
            if lost := await _lost(states[source], client):
                raise ConfigError(
                    f"stage {stage.name!r} needs state {states[source]} of stage {source!r}, which {lost}. Train "
                    f"{source!r} again with all after it (`whitney run PIPELINE --from {source}`); or let "
                    f'{stage.name!r} begin elsewhere (`start_from = "base"`, say), which a run that goes on takes with '
                    "`--allow-drift`"
                )


def _has_begun(pipeline: PipelineConfig, stage: StageConfig, folder: Path) -> bool:
    """Whether a stage has saved a block of its own, in whichever of the folders that may be its."""
    return any((run.path / "states.jsonl").is_file() for run in RunFolder.all_of(folder, pipeline.run_name(stage)))


def _sources(pipeline: PipelineConfig, stage: StageConfig) -> set[str]:
    """The stages that a stage has its weights and its teacher from."""
    return {name for name in (pipeline.starts_at(stage), stage.teacher_from) if name is not None}


async def _lost(state_id: str, client: WhitneyClient) -> str | None:
    """What has become of a state that can no longer be begun from."""
    try:
        complete = (await client.get_state(state_id)).complete
    except GoneError as error:
        return f"is gone: {error}"
    except NotFoundError as error:
        return (
            f"this endpoint does not have: {error}. It is another endpoint's, or went with a gateway that ended with "
            "its run"
        )
    return None if complete else "is not complete any more: its file is not as it was saved"
