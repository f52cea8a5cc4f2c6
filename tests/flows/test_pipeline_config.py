"""A pipeline's configuration: what it makes of its stages, and what it refuses, by stage and field."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from tiny_pipelines import OPD, RL, SFT, SHARED, pipeline_config

from flows.config import GrpoConfig
from flows.config.mistakes import mistakes
from flows.config.pipeline import PipelineConfig
from flows.config.stages import SET_BY_PIPELINE, stage_config
from flows.stages.outcome import stage_fingerprint

TABLE: dict[str, Any] = {"shared": SHARED, "stages": [SFT, RL, OPD]}
Change = Callable[[dict[str, Any]], object]


def refused(change: Change) -> list[str]:
    """What is said of the three stages with a change."""
    table = copy.deepcopy(TABLE)
    change(table)
    with pytest.raises(ValidationError) as error:
        PipelineConfig.model_validate(table)
    return mistakes(PipelineConfig, error.value)


def of(stage: int, **fields: Any) -> Change:
    return lambda table: table["stages"][stage].update(fields)


def within(stage: int, **fields: Any) -> Change:
    return lambda table: table["stages"][stage]["config"].update(fields)


def test_each_stage_has_its_own_settings_over_the_shared_ones_of_its_algorithm(tmp_path: Path) -> None:
    shared = {"rewards": [{"function": "exact"}], "sampling": {"max_tokens": 6, "temperature": 0.5}}
    stages = ({**SFT, "config": {"sampling": {"max_tokens": 9}}}, {**RL, "config": {}})
    pipeline = pipeline_config(tmp_path, *stages, shared=shared, credentials_block="block", session_limit="slots")
    sft, rl = (stage_config(pipeline, stage) for stage in pipeline.stages)
    assert (sft.sampling.max_tokens, sft.sampling.temperature) == (9, 0.5), "tables are merged field by field"
    assert not hasattr(sft, "rewards"), "what an algorithm has not it is not given"
    assert [reward.function for reward in rl.rewards] == ["exact"]  # type: ignore[attr-defined] # grpo has rewards
    for number, config in enumerate((sft, rl), 1):
        assert config.name == f"{number}-{pipeline.stages[number - 1].name}"
        assert (config.credentials_block, config.session_limit) == ("block", "slots")


def test_a_stage_begins_with_the_weights_of_the_one_before_or_of_another_or_afresh(tmp_path: Path) -> None:
    stages = [
        {**SFT, "name": "a"},
        {**SFT, "name": "b"},
        {**SFT, "name": "c", "start_from": "state"},
        {**SFT, "name": "d", "start_stage": "a"},
        {**SFT, "name": "e", "start_from": "base"},
    ]
    pipeline = pipeline_config(tmp_path, *stages)
    states = {name: f"state-{name}" for name in "abcd"}
    models = [stage_config(pipeline, stage, states.__getitem__).model for stage in pipeline.stages]
    assert [model.initial_state_id for model in models] == [None, "state-a", "state-b", "state-a", None]
    assert [model.initial_optimizer for model in models] == [False, False, True, False, False]


def test_a_teacher_from_a_stage_has_that_stages_weights_and_shape(tmp_path: Path) -> None:
    pipeline = pipeline_config(tmp_path)
    student = stage_config(pipeline, pipeline.stage("opd"), {"rl": "state-rl"}.__getitem__)
    teacher = student.teacher  # type: ignore[attr-defined] # opd has one
    assert (teacher.state_id, teacher.rank, teacher.alpha) == ("state-rl", 8, 16)
    assert (student.model.initial_state_id, student.lora.rank) == (None, 4)


def test_it_is_the_same_again_after_prefect_has_stored_it(tmp_path: Path) -> None:
    pipeline = pipeline_config(tmp_path, {**SFT, "require": "eval.loss < 9"}, RL, approval={"above_operations": 5})
    assert PipelineConfig.model_validate(pipeline.model_dump(mode="json")) == pipeline
    assert [stage.name for stage in pipeline.stages] == ["sft", "rl"], "a stage without a name has its algorithm's"


def test_the_form_offers_the_algorithms() -> None:
    schema = PipelineConfig.model_json_schema()
    assert "sft" in schema["$defs"]["StageConfig"]["properties"]["algorithm"]["enum"]
    assert all("description" in field for field in schema["$defs"]["StageConfig"]["properties"].values())


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (of(1, name="sft"), "stages[1].name = 'sft': stages[0] has that name; give it another"),
        (of(1, algorithm="gpro"), "stages[1].algorithm = 'gpro': "),
        (within(1, cycles=0), "stages.rl.config.cycles = 0: input should be greater than or equal to 1"),
        (within(1, cycls=3), "stages.rl.config: unknown field 'cycls': did you mean 'cycles'?"),
        (within(1, rewards=[{"weight": "x"}]), "stages.rl.config.rewards[0].weight = 'x': "),
        (lambda table: table.update(shared={**SHARED, "cycles": 0}), "shared.cycles = 0: input should be greater"),
        (lambda table: table.update(shared={**SHARED, "cycls": 1}), "shared: unknown field 'cycls': did you mean"),
        (lambda table: table.update(shared={**SHARED, "seeds": 1}), "no stage's algorithm has it"),
        (lambda table: table.update(shared={**SHARED, "name": "x"}), "shared.name: the pipeline has this itself; move"),
        (
            lambda table: table.update(shared={"model": {"name": "tiny", "initial_state_id": "st"}}),
            "shared.model.initial_state_id: every stage would begin there",
        ),
        (within(1, output_dir="x"), "stages.rl.config.output_dir: the pipeline has this for all stages"),
        (within(1, approval={}), "stages.rl.config.approval: the pipeline has this for all stages"),
        (within(1, model={"initial_state_id": "st"}), "this stage begins with the weights of 'sft'"),
        (of(0, start_from="weights"), "stages.sft.start_from = 'weights': no stage is before the first"),
        (of(1, start_stage="opd"), "stages.rl.start_stage = 'opd': not an earlier stage; earlier stages: sft"),
        (of(2, start_stage="rl"), "start_stage = 'rl': no effect with start_from = \"base\""),
        (of(2, teacher_from="lr"), "stages.opd.teacher_from = 'lr': not an earlier stage; "),
        (of(1, teacher_from="sft"), "stages.rl.teacher_from = 'sft': grpo has no teacher; leave it out"),
        (within(2, teacher={"name": "big"}), "stages.opd.config.teacher.name: the teacher is stage 'rl'"),
        (of(2, start_from="weights"), "stages.opd.config.lora.rank = 4: its weights are those of stage 'rl'"),
        (within(1, model={"name": "big"}), "stages.rl.config.model.name = 'big': its weights are those of"),
        (of(1, start_from="state"), "the optimizer of sft has run on another kind of loss than that of grpo"),
        (of(1, require="eval.accuracy > high"), "stages.rl.require = 'eval.accuracy > high': not a condition"),
        (of(1, require="opd.eval.accuracy > 1"), "opd.eval.accuracy: not this stage and no earlier one"),
        (of(1, require="eval.pass@4 > 0"), "stage 'rl' does not draw for it; set evaluation.pass_at = [4]"),
        (of(1, require="eval.greedy_accuracy > 0"), "stage 'rl' has evaluation.greedy = false"),
        (
            of(1, require="eval.loss < 1"),
            "eval.loss is not measured: stage 'rl' does not train by sft, which alone measures it",
        ),
        (
            of(0, require="eval.margin < 1"),
            "eval.margin is not measured: stage 'sft' does not train by dpo, which alone measures it",
        ),
        (
            lambda table: (of(1, require="eval.accuracy > 0")(table), within(1, evaluation={"enabled": False})(table)),
            "eval.accuracy is not measured: stage 'rl' has evaluation.enabled = false",
        ),
        (lambda table: table.update(stages=[]), "stages = []: list should have at least 1 item"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_mistake_is_named_by_stage_and_field(change: Change, told: str) -> None:
    lines = refused(change)
    assert any(told in line for line in lines), lines


def test_mistakes_of_several_stages_are_told_at_once() -> None:
    def change(table: dict[str, Any]) -> None:
        within(0, cycles=0)(table)
        within(1, group_size=1)(table)

    lines = refused(change)
    assert [line.split(" = ")[0] for line in lines] == [
        "stages.sft.config.cycles",
        "stages.rl.config.group_size",
    ]


def test_a_teachers_mistake_is_not_told_as_its_students() -> None:
    assert len(refused(within(1, cycles=0))) == 1


def test_a_stages_fingerprint_says_whether_it_would_train_the_same(tmp_path: Path) -> None:
    def prints(*stages: dict[str, Any], **fields: Any) -> list[str]:
        pipeline = pipeline_config(tmp_path, *stages, **fields)
        return [stage_fingerprint(pipeline, stage) for stage in pipeline.stages]

    first = prints(SFT, RL)
    assert prints(SFT, RL, name="other", session_limit="slots") == first
    assert prints({**SFT, "require": "eval.loss < 3"}, RL) == first, "a gate trains nothing"
    faster = prints(SFT, {**RL, "config": {**RL["config"], "cycles": 4}})
    assert (faster[0] == first[0], faster[1] == first[1]) == (True, False)
    assert prints(SFT, {**RL, "start_from": "base"})[1] != first[1]
    assert prints({**SFT, "name": "other"}, RL)[1] != first[1], "it says which stage its weights are of"


def test_a_stages_table_with_every_field_at_its_default_is_taken_for_what_it_says() -> None:
    table = copy.deepcopy(TABLE)
    rl = table["stages"][1]
    filled = GrpoConfig.model_validate({**SHARED, **rl["config"]}).model_dump(mode="json", exclude=set(SET_BY_PIPELINE))
    rl["config"] = filled
    assert filled["model"]["initial_optimizer"] is False, "as `whitney init` and a form write it"
    PipelineConfig.model_validate(table)
