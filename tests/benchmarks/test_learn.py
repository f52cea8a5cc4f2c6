"""Every kind of experiment of `make learn`, on the tiny model: nothing is learned there, but everything is measured."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import feedback
from benchmarks.experiments import Experiment, Finding, Record, Records, missing
from benchmarks.learn import EXPERIMENTS, main, measured, run
from benchmarks.learning_page import page, sparkline
from flows.config import FlowConfig
from flows.config.pipeline import PipelineConfig
from flows.config.stages import stage_config
from flows.load_config import AnyConfig, load_config
from tasks.datasets.addition import one_digit
from tasks.jsonl import read_jsonl

SMALL = (
    "model.name=tiny",
    "cycles=2",
    "save_every=2",
    "sampling.max_tokens=6",
    "evaluation.max_prompts=2",
    "evaluation.samples=1",
)
SMALL_GROUPS = ("groups_per_cycle=2", "group_size=4")
BY_NAME = {experiment.name: experiment for experiment in EXPERIMENTS}


def small(name: str) -> Experiment:
    """An experiment as it is, but with few and small cycles on the tiny model."""
    experiment = BY_NAME[name]
    extra = SMALL if name == "dpo" else SMALL + SMALL_GROUPS
    first = experiment.first
    if first is not None:
        first = replace(first, settings=(*first.settings, *SMALL, "batch_size=2"))
    return replace(experiment, settings=(*experiment.settings, *extra), first=first)


@pytest.fixture
def own_gateway(prefect_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WHITNEY_BASE_URL", raising=False)


@pytest.mark.parametrize("name", ["grpo", "dpo"])
@pytest.mark.usefixtures("own_gateway")
def test_an_experiment_of_one_run_trains_and_measures(name: str, tmp_path: Path) -> None:
    record = measured(small(name), tmp_path)
    assert record.finding.figures["cycles"] == len(record.finding.curve) == 2
    assert record.cpu_s > 0
    assert record.settings[-1] == small(name).settings[-1]


@pytest.mark.usefixtures("own_gateway")
def test_opd_distils_the_teacher_that_was_trained_before_it(tmp_path: Path) -> None:
    found = measured(small("opd"), tmp_path).finding
    student = json.loads(next(tmp_path.glob("student/runs/*/config.json")).read_text())
    teacher = json.loads(next(tmp_path.glob("teacher/runs/*/summary.json")).read_text())
    assert student["config"]["teacher"]["artifact_id"] == teacher["artifact_id"]
    first, last = found.figures["reverse KL, first cycles"], found.figures["reverse KL, last cycles"]
    assert found.figures["share left"] == last / first
    assert found.met == (last < 0.25 * first)


@pytest.mark.usefixtures("own_gateway")
def test_the_base_model_samples_at_least_as_many_tokens_as_test_time_training(tmp_path: Path) -> None:
    found = measured(small("ttt, seed 1"), tmp_path).finding
    assert found.figures["tokens, base"] >= found.figures["tokens, ttt"] > 0
    assert found.figures["best, ttt"] == max(found.curve)
    assert found.figures["best, base"] >= found.figures["mean, base"] >= 0
    assert found.met == (found.figures["best, ttt"] > found.figures["best, base"])


@pytest.mark.usefixtures("own_gateway")
def test_sdpo_and_its_control_differ_in_the_feedback_alone(tmp_path: Path) -> None:
    found = measured(small("sdpo, seed 1"), tmp_path).finding
    verifier, control = (
        json.loads(next(tmp_path.glob(f"{arm}/runs/*/config.json")).read_text())["config"]
        for arm in ("verifier", "control")
    )
    assert verifier.pop("feedback") == feedback.VERDICT
    assert control.pop("feedback") == feedback.CONTROL
    assert verifier.pop("output_dir") != control.pop("output_dir")
    assert verifier.pop("name") == control.pop("name")
    assert verifier == control
    assert verifier["model"]["initial_artifact_id"] is not None
    assert set(found.figures) == {"before", "after, verifier", "after, constant", "cycles"}


def test_the_school_has_bare_questions_and_true_verdicts_and_nothing_held_out(tmp_path: Path) -> None:
    feedback.write_school(tmp_path / "school.jsonl", "tiny")
    lessons = read_jsonl(tmp_path / "school.jsonl")
    kinds: Counter[str] = Counter()
    for lesson in lessons:
        question, *rest = lesson.messages[-1]["content"].split("\nAttempt: ")
        first, second = (int(number) for number in re.findall(r"[0-9]+", question))
        assert lesson.answer == str(first + second)
        if not rest:
            kinds["bare"] += 1
            continue
        attempt, verdict, _ = rest[0].split("\n")
        right = attempt == lesson.answer
        assert ("it is right." in verdict) == right
        assert ("it is wrong." in verdict) != right
        assert verdict.endswith(f"The right answer is {lesson.answer}.")
        kinds["right" if right else "wrong"] += 1
    assert kinds == {"bare": 59, "right": 59, "wrong": 59}
    heldout = {item.messages[-1]["content"] for item in one_digit()[1]}
    assert not heldout & {lesson.messages[-1]["content"].split("\n")[0] for lesson in lessons}


def a_record(experiment: Experiment, **figures: float) -> Record:
    return Record(
        fingerprint=experiment.fingerprint,
        starter=experiment.starter,
        settings=experiment.settings,
        commit="abc+",
        wall_s=12.0,
        cpu_s=34.0,
        finding=Finding(
            figures={"before": 0.125, "after": 0.9375, "cycles": 3, **figures}, curve=[0, 0.5, 1], met=True
        ),
    )


def test_a_finding_is_on_disk_at_once_and_holds_for_just_its_settings_and_starter(tmp_path: Path) -> None:
    grpo, ppo = BY_NAME["grpo"], BY_NAME["ppo"]
    Records(tmp_path / "learning.json").keep(grpo, a_record(grpo))
    records = Records(tmp_path / "learning.json")
    assert records.of(grpo) == a_record(grpo)
    assert missing([grpo, ppo], records) == [ppo]
    changed = replace(grpo, settings=(*grpo.settings, "seed=1"))
    assert missing([changed], records) == [changed]


def test_experiments_that_are_done_are_not_run_again(tmp_path: Path) -> None:
    ran = []

    def measure(experiment: Experiment, folder: Path) -> Finding:
        ran.append(experiment.name)
        if experiment.name == "fails":
            raise RuntimeError("the machine went away")
        return Finding({}, [], met=False)

    records = Records(tmp_path / "learning.json")
    chosen = [replace(BY_NAME["grpo"], name=name, measure=measure) for name in ("works", "fails", "comes later")]
    for _ in range(2):
        with pytest.raises(RuntimeError, match="the machine went away"):
            run(missing(chosen, records), records)
    assert ran == ["works", "fails", "fails"]


def test_the_page_has_a_row_for_every_experiment_with_its_numbers_settings_and_commit(tmp_path: Path) -> None:
    records = Records(tmp_path / "learning.json")
    grpo = BY_NAME["grpo"]
    records.keep(grpo, a_record(grpo))
    rows = {line.split(" | ")[0].strip("| "): line for line in page(EXPERIMENTS, records).splitlines() if "|" in line}
    assert rows.keys() >= BY_NAME.keys()
    for part in ("12%", "94%", "▁▅█", "| 12 |", "| 34 |", "demo-grpo-addition.toml", "`cycles=12`", "`abc+`"):
        assert part in rows["grpo"]
    assert "not measured yet" in rows["ppo"]


def test_an_experiment_that_does_not_exist_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["learn", "--only", "grpo", "gripo"])
    with pytest.raises(SystemExit):
        main()
    assert "no experiment gripo; --list names them" in capsys.readouterr().err


def test_a_sparkline_runs_from_the_lowest_to_the_highest_value() -> None:
    assert sparkline([0.2, 0.9, 0.2]) == "▁█▁"
    assert sparkline([0.5, 0.5]) == "▁▁"
    assert sparkline([]) == ""


def trained_with(config: AnyConfig) -> list[FlowConfig]:
    if isinstance(config, PipelineConfig):
        return [stage_config(config, stage) for stage in config.stages]
    return [config]


def test_every_experiments_settings_are_ones_that_its_starter_takes() -> None:
    for experiment in EXPERIMENTS:
        for stage in experiment.stages:
            algorithm, config = load_config(stage.path, stage.settings)
            for one in trained_with(config):
                assert one.model.name == "smollm2-135m-instruct"
                assert one.cycles >= 7, algorithm
