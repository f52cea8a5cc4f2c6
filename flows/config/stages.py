"""The configuration of each stage of a pipeline, with what the pipeline puts into it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from flows.config import CONFIGS, FlowConfig
from flows.config.stage import StageConfig
from flows.config.staged import StagedConfig

SET_BY_PIPELINE = ("name", "output_dir", "credentials_block", "session_limit", "skip_unchanged", "approval")
"""Fields of every algorithm's configuration that the pipeline has for all stages."""


def later(stage: str) -> str:
    """What stands for the state that a stage will have saved, while it has not."""
    return f"the state of stage {stage}"


def stage_config(
    pipeline: StagedConfig,
    stage: StageConfig,
    state_of: Callable[[str], str] = later,
    *,
    output_dir: Path | None = None,
) -> FlowConfig:
    """What a stage is trained with.

    Args:
        pipeline: the pipeline it is of.
        stage: one of its stages.
        state_of: the state that an earlier stage has saved, by its name.
        output_dir: the pipeline's own folder, that stages' are inside.

    Raises:
        ValidationError: the table is not the algorithm's.
    """
    table = merged_table(pipeline, stage)
    table |= {"name": pipeline.run_name(stage), "output_dir": output_dir or pipeline.output_dir}
    table |= {"credentials_block": pipeline.credentials_block, "session_limit": pipeline.session_limit}
    if start := pipeline.starts_at(stage):
        initial = {"initial_state_id": state_of(start), "initial_optimizer": stage.start_from == "state"}
        table["model"] = {**table.get("model", {}), **initial}
    if stage.teacher_from:
        teacher = stage_config(pipeline, pipeline.stage(stage.teacher_from))
        made_of: dict[str, Any] = {"name": teacher.model.name, "provider": teacher.model.provider}
        made_of |= {"rank": teacher.lora.rank, "alpha": teacher.lora.alpha, "state_id": state_of(stage.teacher_from)}
        table["teacher"] = {**table.get("teacher", {}), **made_of}
    return CONFIGS[stage.algorithm].model_validate(table)


def merged_table(pipeline: StagedConfig, stage: StageConfig) -> dict[str, Any]:
    """What of `shared` the stage's algorithm has, and over it what the stage says, table by table."""
    known = CONFIGS[stage.algorithm].model_fields
    shared = {name: value for name, value in pipeline.shared.items() if name in known}
    return _merged(shared, stage.config)


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for name, value in above.items():
        former = merged.get(name)
        both = isinstance(former, Mapping) and isinstance(value, Mapping)
        merged[name] = _merged(former, value) if both else value  # type: ignore[arg-type] # `both` says so
    return merged
