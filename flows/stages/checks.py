"""A mistake in the third stage costs nothing: all stages are checked before the first one allocates anything."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from algorithms.gates import parse_gate
from flows.checks.drift import changes, drift_allowed, fingerprint, in_lines
from flows.checks.prepare import check_inputs, data_fingerprint, prepare
from flows.checks.prepared import Prepared
from flows.config import ConfigError
from flows.config.pipeline import PIPELINE, PipelineConfig, StageConfig
from flows.config.stages import later, stage_config
from flows.stages.outcome import StageOutcome, stage_fingerprint
from tasks.provenance import provenance
from whitney.client import WhitneyClient
from whitney.errors import NotFoundError


def check_pipeline_inputs(pipeline: PipelineConfig) -> None:
    """What can be checked of every stage without an endpoint, as `flows.checks.prepare.check_inputs` does of one.

    Raises:
        ConfigError, DataError, RenderingError, ModelError: names the stage.
    """
    for stage in pipeline.stages:
        with _named(stage):
            check_inputs(stage.algorithm, stage_config(pipeline, stage))


async def prepare_stages(pipeline: PipelineConfig, skipped: Collection[str]) -> dict[str, Prepared]:
    """Everything that `prepare` checks, of every stage but those that will not run; what it has found, by stage.

    Raises:
        ConfigError, DataError, RenderingError, ModelError, WhitneyError: names the stage.
    """
    to_come = {later(stage.name) for stage in pipeline.stages}
    found: dict[str, Prepared] = {}
    for stage in pipeline.stages:
        if stage.name in skipped:
            continue
        with _named(stage):
            config = stage_config(pipeline, stage)
            client, found[stage.name] = await prepare(stage.algorithm, config, not_there_yet=to_come)
            await client.aclose()
            _require_measured(pipeline, stage, found)
    return found


def _require_measured(pipeline: PipelineConfig, stage: StageConfig, found: Mapping[str, Prepared]) -> None:
    """A gate on what is held out, where nothing is."""
    for metric in parse_gate(stage.require).metrics if stage.require else ():
        prepared = found.get(metric.stage or stage.name)
        if prepared is not None and not prepared.heldout:
            raise ConfigError(
                f"require = {stage.require!r}: {metric} is not measured, for {prepared.config.data.source} holds no "
                "example out; set data.heldout or data.heldout_fraction, or leave `require` out"
            )


@contextmanager
def _named(stage: StageConfig) -> Iterator[None]:
    """Say which stage an error is of, and keep its kind: some are the user's mistake, others the endpoint's failure."""
    try:
        yield
    except Exception as error:
        if error.args and isinstance(error.args[0], str):
            error.args = (f"stage {stage.name!r}: {error.args[0]}", *error.args[1:])
        raise


async def require_recorded(pipeline: PipelineConfig, recorded: Sequence[StageOutcome], client: WhitneyClient) -> None:
    """Make sure that outcomes of an earlier pipeline can stand for the first stages of this one.

    Raises:
        ConfigError: they are not of the first stages in their order, a stage's configuration or data is another, or
            what a later stage needs of one is gone.
        WhitneyError: the endpoint cannot be asked.
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
        with _named(stage):
            now = await asyncio.to_thread(data_fingerprint, stage_config(pipeline, stage))
        if outcome.data_fingerprint not in (now, None):
            raise ConfigError(
                f"stage {stage.name!r} was recorded on other data, by the run in {outcome.run_folder}; start at this "
                "stage or before"
            )
    needed = {
        name for stage in pipeline.stages[len(given) :] for name in (pipeline.starts_at(stage), stage.teacher_from)
    }
    for outcome in recorded:
        if outcome.stage in needed:
            await _require_state(outcome, client)


async def _require_state(outcome: StageOutcome, client: WhitneyClient) -> None:
    try:
        state = await client.get_state(outcome.state_id)
    except NotFoundError as error:
        raise ConfigError(
            f"stage {outcome.stage!r} was recorded with state {outcome.state_id}, which this endpoint does not have: "
            f"{error}. It is another endpoint's, was deleted, or went with a gateway that ended with its run; start at "
            "this stage or before"
        ) from error
    if not state.complete:
        raise ConfigError(
            f"stage {outcome.stage!r} was recorded with state {outcome.state_id}, which is not complete any more: its "
            "file is not as it was saved; start at this stage or before"
        )


def whole_fingerprint(pipeline: PipelineConfig, prepared: Mapping[str, Prepared]) -> str | None:
    """Of all stages with their data; None where not all of them have been looked at."""
    if len(prepared) < len(pipeline.stages):
        return None
    parts = {name: fingerprint(one.record("")) for name, one in prepared.items()}
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def record(pipeline: PipelineConfig) -> dict[str, Any]:
    """config.json of a pipeline: its configuration, and that of each stage as its algorithm reads it."""
    stages = {
        stage.name: {
            "algorithm": stage.algorithm,
            "start_from": pipeline.starts_at(stage),
            "config": stage_config(pipeline, stage).model_dump(mode="json"),
        }
        for stage in pipeline.stages
    }
    return {"algorithm": PIPELINE, "config": pipeline.model_dump(mode="json"), "stages": stages, **provenance()}


def require_same_stages(before: Mapping[str, Any], now: Mapping[str, Any], finished: Collection[str]) -> None:
    """Make sure that a pipeline that goes on is the one that began. Gates may change: they train nothing.

    A stage that is at work compares with its own record, more closely.

    Raises:
        ConfigError: a finished stage's configuration is another one; or that of another stage, or their order, where
            it is not said that this is meant.
    """
    if "stages" not in before:
        return
    old, new = before["stages"], now["stages"]
    done = [name for name in old if name in finished]
    if list(new)[: len(done)] != done:
        raise ConfigError(
            f"finished stages cannot be moved or taken away: {', '.join(done)} must come first, not "
            f"{', '.join(new)}. Undo the change, or start a new pipeline (`--from` takes finished stages over)"
        )
    if list(old) != list(new) and not drift_allowed():
        raise ConfigError(
            f"this pipeline began with the stages {', '.join(old)}, now they are {', '.join(new)}. Undo the change, or "
            "say that it is meant: `whitney run --resume RUN --allow-drift`"
        )
    for name in [name for name in new if name in old]:
        if not (changed := changes(old[name], new[name])):
            continue
        if name in finished:
            raise ConfigError(
                f"stage {name!r} is finished, and its configuration is another one now:\n{in_lines(changed)}\n"
                f"Undo the change; or start a new pipeline, which trains it again"
            )
        if not drift_allowed():
            raise ConfigError(
                f"stage {name!r} began with something else, or was to:\n{in_lines(changed)}\n"
                "Undo the change; or, if it is meant, `whitney run --resume RUN --allow-drift` goes on "
                "(WHITNEY_ALLOW_DRIFT=1 in the environment of a worker)"
            )
