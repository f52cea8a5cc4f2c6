"""A mistake in the third stage costs nothing: all stages are checked before the first one allocates anything."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from algorithms.gates import parse_gate
from flows.checks.money import require_prices
from flows.checks.prepare import check_inputs, prepare
from flows.checks.prepared import Prepared
from flows.config import ConfigError
from flows.config.pipeline import PipelineConfig, StageConfig
from flows.config.stages import later, stage_config


def check_pipeline_inputs(pipeline: PipelineConfig) -> None:
    """What can be checked of every stage without an endpoint, as `flows.checks.prepare.check_inputs` does of one.

    Raises:
        ConfigError, DataError, RenderingError, ModelError: names the stage.
        PriceError: the pipeline's own price file cannot be used.
    """
    require_prices(pipeline.budget)
    for stage in pipeline.stages:
        with about(stage):
            check_inputs(stage.algorithm, stage_config(pipeline, stage))


async def prepare_stages(pipeline: PipelineConfig, skipped: Collection[str]) -> dict[str, Prepared]:
    """Everything that `prepare` checks, of every stage but those that will not run; what it has found, by stage.

    Raises:
        ConfigError, DataError, RenderingError, ModelError, WhitneyError: names the stage.
        PriceError: the pipeline's own price file cannot be used.
    """
    require_prices(pipeline.budget)
    to_come = {later(stage.name) for stage in pipeline.stages}
    found: dict[str, Prepared] = {}
    for stage in pipeline.stages:
        if stage.name in skipped:
            continue
        with about(stage):
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
def about(stage: StageConfig) -> Iterator[None]:
    """Say which stage an error is of, and keep its kind: some are the user's mistake, others the endpoint's failure."""
    try:
        yield
    except Exception as error:
        if error.args and isinstance(error.args[0], str):
            error.args = (f"stage {stage.name!r}: {error.args[0]}", *error.args[1:])
        raise
