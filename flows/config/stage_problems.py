"""What is wrong with the stages of a pipeline: everything that its configuration alone can tell."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from algorithms.names import did_you_mean
from flows.config import CONFIGS, DistillConfig, FlowConfig, RolloutConfig
from flows.config.gates import gate_problems
from flows.config.mistakes import mistakes
from flows.config.stages import SET_BY_PIPELINE, merged_table, stage_config

if TYPE_CHECKING:  # pipeline.py builds on this module
    from flows.config.pipeline import PipelineConfig, StageConfig

INITIAL = ("initial_state_id", "initial_artifact_id", "initial_optimizer")
OF_TEACHER = ("name", "provider", "state_id", "artifact_id", "rank", "alpha")


def problems(pipeline: PipelineConfig) -> list[str]:
    """Everything about the stages that can be refused before anything else is looked at, a line each."""
    found = [*_shared_problems(pipeline), *_reference_problems(pipeline)]
    if found:
        return found  # what follows would only say the same in other words
    configs: dict[str, FlowConfig] = {}
    for index, stage in enumerate(pipeline.stages):
        where = f"stages[{index}] ({stage.name})"
        if mine := [f"{where}{line}" for line in _table_problems(pipeline, stage)]:
            found += mine
        elif stage.teacher_from is None or stage.teacher_from in configs:  # its teacher's mistakes are told already
            try:
                configs[stage.name] = stage_config(pipeline, stage)
            except ValidationError as error:
                found += _field_problems(pipeline, stage, where, error)
    if len(configs) < len(pipeline.stages):
        return found
    for index, stage in enumerate(pipeline.stages):
        where = f"stages[{index}] ({stage.name})"
        found += [f"{where}{line}" for line in _weight_problems(pipeline, stage, configs)]
        earlier = [one.name for one in pipeline.before(stage)]
        found += [f"{where}.require = {stage.require!r}: {line}" for line in gate_problems(stage, earlier, configs)]
    return found


def _field_problems(pipeline: PipelineConfig, stage: StageConfig, where: str, error: ValidationError) -> Iterator[str]:
    """What pydantic has found in a stage's table, a line each; of what `shared` says, by the name it has there."""
    for line in mistakes(CONFIGS[stage.algorithm], error):
        path = re.match(r"[\w.\[\]]+(?= = | is missing)", line)
        if path is None:
            yield f"{where}.config: {line}"
        elif _has(pipeline.shared, path[0]) and not _has(stage.config, path[0]):
            yield f"shared.{line} (as {where} takes it)"
        else:
            yield f"{where}.config.{line}"


def _has(table: Any, path: str) -> bool:
    """Whether a table says something at a place, as a message names it: `model.name`, `rewards[0].weight`."""
    for part in re.findall(r"\w+", path):
        if isinstance(table, Mapping) and part in table:
            table = table[part]
        elif isinstance(table, list) and part.isdecimal():
            table = table[int(part)]
        else:
            return False
    return True


def _shared_problems(pipeline: PipelineConfig) -> Iterator[str]:
    known = {name for stage in pipeline.stages for name in CONFIGS[stage.algorithm].model_fields}
    for name in pipeline.shared:
        if name in SET_BY_PIPELINE:
            yield f"shared.{name}: the pipeline has this for all stages; write it above them"
        elif name not in known:
            hint = did_you_mean(name, known)
            yield f"shared: unknown field {name!r}: {hint}no stage's algorithm has it"
    for name in _given(pipeline.shared, "model", INITIAL):
        yield f"shared.model.{name}: every stage would begin there; write it into the config of the one that should"


def _reference_problems(pipeline: PipelineConfig) -> Iterator[str]:
    names: list[str] = []
    for index, stage in enumerate(pipeline.stages):
        where = f"stages[{index}] ({stage.name})"
        if stage.name in names:
            yield f"{where}.name = {stage.name!r}: stages[{names.index(stage.name)}] has that name; give it another"
        for field, value in (("start_stage", stage.start_stage), ("teacher_from", stage.teacher_from)):
            if value is not None and value not in names:
                earlier = f"earlier stages: {', '.join(names)}" if names else "there is no earlier stage"
                yield f"{where}.{field} = {value!r}: not an earlier stage; {did_you_mean(value, names)}{earlier}"
        if stage.start_from == "base" and stage.start_stage:
            yield f'{where}.start_stage = {stage.start_stage!r}: no effect with start_from = "base"; leave one out'
        if stage.start_from in ("weights", "state") and not names:
            yield f'{where}.start_from = {stage.start_from!r}: no stage is before the first; "base", or leave it out'
        names.append(stage.name)


def _table_problems(pipeline: PipelineConfig, stage: StageConfig) -> Iterator[str]:
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


def _weight_problems(pipeline: PipelineConfig, stage: StageConfig, configs: Mapping[str, FlowConfig]) -> Iterator[str]:
    """An adapter can go on only as what it is: of the same model, rank and alpha; an optimizer with its own kind."""
    if not (start := pipeline.starts_at(stage)):
        return
    own, its = configs[stage.name], configs[start]
    pairs = {
        "model.provider": (own.model.provider, its.model.provider),
        "model.name": (own.model.name, its.model.name),
        "lora.rank": (own.lora.rank, its.lora.rank),
        "lora.alpha": (own.lora.alpha, its.lora.alpha),
    }
    for path, (mine, theirs) in pairs.items():
        if mine != theirs:
            yield (
                f".config.{path} = {mine!r}: its weights are those of stage {start!r}, whose {path} is {theirs!r}; "
                'make them the same (`shared` is for that), or set start_from = "base"'
            )
    if stage.start_from == "state" and not _of_a_kind(own, its):
        yield (
            f'.start_from = "state": the optimizer of {pipeline.stage(start).algorithm} has run on another kind of '
            f'loss than that of {stage.algorithm}; "weights" begins with a fresh one'
        )


def _of_a_kind(one: FlowConfig, other: FlowConfig) -> bool:
    """Whether an optimizer's means of one's gradients say something of the other's: same algorithm or family."""
    families = (RolloutConfig, DistillConfig)
    return type(one) is type(other) or any(isinstance(one, kind) and isinstance(other, kind) for kind in families)
