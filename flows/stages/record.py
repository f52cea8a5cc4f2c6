"""config.json of a pipeline; and whether a pipeline that goes on is the one that began."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from typing import Any

from flows.checks.drift import changes, drift_allowed, fingerprint, in_lines
from flows.checks.prepared import Prepared
from flows.config import ConfigError
from flows.config.pipeline import PIPELINE, PipelineConfig
from flows.config.stages import stage_config
from tasks.provenance import provenance


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
