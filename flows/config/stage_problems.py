"""What is wrong with the stages of a pipeline: everything that its configuration alone can tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from algorithms.names import did_you_mean
from flows.config import CONFIGS, FlowConfig
from flows.config.gates import gate_problems
from flows.config.stage import StageConfig
from flows.config.stage_mistakes import stage_mistakes
from flows.config.stage_weights import weight_problems
from flows.config.staged import StagedConfig
from flows.config.stages import SET_BY_PIPELINE, merged_table, stage_config

INITIAL = ("initial_state_id", "initial_artifact_id", "initial_optimizer")
OF_TEACHER = ("name", "provider", "state_id", "artifact_id", "rank", "alpha")


def problems(pipeline: StagedConfig) -> list[str]:
    """Everything about the stages that can be refused before anything else is looked at, a line each."""
    found = [*_shared_problems(pipeline), *_reference_problems(pipeline)]
    if found:
        return found  # what follows would only say the same in other words
    configs: dict[str, FlowConfig] = {}
    for stage in pipeline.stages:
        where = f"stages.{stage.name}"
        if mine := [f"{where}{line}" for line in _table_problems(pipeline, stage)]:
            found += mine
        elif stage.teacher_from is None or stage.teacher_from in configs:  # its teacher's mistakes are told already
            try:
                configs[stage.name] = stage_config(pipeline, stage)
            except ValidationError as error:
                found += stage_mistakes(pipeline, stage, where, error)
    if len(configs) < len(pipeline.stages):
        return found
    for stage in pipeline.stages:
        where = f"stages.{stage.name}"
        found += [f"{where}{line}" for line in weight_problems(pipeline, stage, configs)]
        earlier = [one.name for one in pipeline.before(stage)]
        found += [f"{where}.require = {stage.require!r}: {line}" for line in gate_problems(stage, earlier, configs)]
    return found


def _shared_problems(pipeline: StagedConfig) -> Iterator[str]:
    known = {name for stage in pipeline.stages for name in CONFIGS[stage.algorithm].model_fields}
    for name in pipeline.shared:
        if name in SET_BY_PIPELINE:
            yield f"shared.{name}: the pipeline has this itself; move it out of [shared], to the top of the file"
        elif name not in known:
            hint = did_you_mean(name, known)
            yield f"shared: unknown field {name!r}: {hint}no stage's algorithm has it"
    for name in _given(pipeline.shared, "model", INITIAL):
        yield f"shared.model.{name}: every stage would begin there; write it into the config of the one that should"


def _reference_problems(pipeline: StagedConfig) -> Iterator[str]:
    names: list[str] = []
    for index, stage in enumerate(pipeline.stages):
        where = f"stages.{stage.name}"
        if stage.name in names:
            first = names.index(stage.name)
            yield f"stages[{index}].name = {stage.name!r}: stages[{first}] has that name; give it another"
        for field, value in (("start_stage", stage.start_stage), ("teacher_from", stage.teacher_from)):
            if value is not None and value not in names:
                earlier = f"earlier stages: {', '.join(names)}" if names else "there is no earlier stage"
                yield f"{where}.{field} = {value!r}: not an earlier stage; {did_you_mean(value, names)}{earlier}"
        if stage.start_from == "base" and stage.start_stage:
            yield f'{where}.start_stage = {stage.start_stage!r}: no effect with start_from = "base"; leave one out'
        if stage.start_from in ("weights", "state") and not names:
            yield f'{where}.start_from = {stage.start_from!r}: no stage is before the first; "base", or leave it out'
        names.append(stage.name)


def _table_problems(pipeline: StagedConfig, stage: StageConfig) -> Iterator[str]:
    for name in SET_BY_PIPELINE:
        if name in stage.config:
            yield f".config.{name}: the pipeline has this for all stages; leave it out here"
    table = merged_table(pipeline, stage)
    if start := pipeline.starts_at(stage):
        for name in _given(table, "model", INITIAL):
            yield f'.config.model.{name}: this stage begins with the weights of {start!r}; or set start_from = "base"'
    if stage.teacher_from is None:
        return
    if "teacher" not in CONFIGS[stage.algorithm].model_fields:
        yield f".teacher_from = {stage.teacher_from!r}: {stage.algorithm} has no teacher; leave it out"
    for name in _given(table, "teacher", OF_TEACHER):
        yield f".config.teacher.{name}: the teacher is stage {stage.teacher_from!r}; leave one of the two out"


def _given(table: Mapping[str, Any], section: str, names: tuple[str, ...]) -> list[str]:
    """Those of the fields that say something: a file of `whitney init` and a form have every field, at its default."""
    inner = table.get(section)
    return [name for name in names if isinstance(inner, Mapping) and inner.get(name) not in (None, False)]
