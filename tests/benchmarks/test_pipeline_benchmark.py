"""The shipped pipeline as it is measured, on the tiny model: nothing is learned, but stages hand on what they made."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.experiments import Record, Records
from benchmarks.learn import EXPERIMENTS as ALL
from benchmarks.learn import measured
from benchmarks.learning_page import page
from benchmarks.pipeline import EXPERIMENTS, RL, SFT, STUDENT, finding, of_seed, table
from flows.config.pipeline import PipelineConfig
from flows.config.stages import stage_config
from flows.load_config import load_config

SMALL = (
    "shared.model.name=tiny",
    "shared.save_every=2",
    "shared.sampling.max_tokens=6",
    "shared.evaluation.max_prompts=2",
    "shared.evaluation.samples=2",
    *(f"stages.{name}.config.cycles=2" for name in (SFT, RL, STUDENT)),
    *(f"stages.{name}.config.groups_per_cycle=2" for name in (RL, STUDENT)),
    "stages.sft.config.batch_size=2",
    # A random model passes no gate.
    *(f"stages.{name}.require=none" for name in (SFT, RL, STUDENT)),
)


@pytest.mark.usefixtures("prefect_server")
def test_each_stage_begins_with_what_an_earlier_one_left_and_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("WHITNEY_BASE_URL", raising=False)
    experiment = of_seed(1)
    figures = measured(replace(experiment, settings=(*experiment.settings, *SMALL)), tmp_path).finding.figures
    of = {name: saved(tmp_path, f"{place}-{name}") for place, name in enumerate((SFT, RL, STUDENT), 1)}
    summaries = {name: summary for name, (_, summary) in of.items()}
    configs = {name: config for name, (config, _) in of.items()}
    assert configs[SFT]["model"]["initial_state_id"] is None
    assert configs[RL]["model"]["initial_state_id"] == summaries[SFT]["state_id"]
    assert configs[STUDENT]["model"]["initial_state_id"] is None
    assert configs[STUDENT]["teacher"]["state_id"] == summaries[RL]["state_id"]
    assert [config["seed"] for config in configs.values()] == [3, 4, 5]
    assert figures["base"] == summaries[SFT]["accuracy_before"]
    for name, summary in summaries.items():
        assert figures[name] == summary["accuracy_after"]
        assert figures[f"{name}, low"] <= figures[name] <= figures[f"{name}, high"]
        assert figures[f"{name}, operations"] == sum(summary["operations"].values()) > 0
    printed = capsys.readouterr().out
    assert all(f"\n  {name} " in printed for name in summaries)


def saved(folder: Path, stage: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A stage's configuration and its summary, as its run folder holds them."""
    (at,) = folder.glob(f"runs/addition/{stage}")
    return json.loads((at / "config.json").read_text())["config"], json.loads((at / "summary.json").read_text())


def stages_with(base: float, sft: float, rl: float, student: float) -> dict[str, Any]:
    """Outcomes of the three stages, by accuracy of the base model and after each of them."""

    def evaluation(value: float) -> dict[str, Any]:
        return {"accuracy": value, "intervals": {"accuracy": [max(0.0, value - 0.05), min(1.0, value + 0.05)]}}

    return {
        name: {
            "stage": name,
            "evaluation_before": evaluation(before),
            "evaluation_after": evaluation(after),
            "cycles": 4,
            "seconds": 61.0,
            "operations": {"sample": 8, "optim_step": 4},
            "tokens": {"trained": 1200, "sampled": 34},
            "gate": {"message": f"{name} is well"},
        }
        for name, before, after in ((SFT, base, sft), (RL, sft, rl), (STUDENT, base, student))
    }


@pytest.mark.parametrize(
    ("accuracies", "met"),
    [
        ((0.0, 0.6, 0.82, 0.74), True),
        ((0.0, 0.6, 0.82, 0.73), False),  # the student keeps less than nine tenths
        ((0.0, 0.6, 0.79, 0.79), False),  # RL does not reach 80 %
        ((0.0, 0.85, 0.84, 0.84), False),  # RL adds nothing
    ],
)
def test_the_goal_is_that_stages_add_up_and_the_student_keeps_it(
    accuracies: tuple[float, float, float, float], met: bool
) -> None:
    found = finding(stages_with(*accuracies))
    assert found.met is met
    assert found.curve == list(accuracies)
    assert found.figures["kept"] == accuracies[3] / accuracies[2]


def test_the_table_has_a_line_a_stage_and_says_what_the_gates_said() -> None:
    lines = table(stages_with(0.0, 0.6, 0.82, 0.75)).splitlines()
    assert [line.split()[0] for line in lines[1:4]] == [SFT, RL, STUDENT]
    assert "0.6 [0.55, 0.65] → 0.82 [0.77, 0.87]" in lines[2]
    assert lines[2].split()[-3:] == ["61", "12", "1,234"]
    assert "  gate of student: student is well" in lines


def test_the_page_shows_accuracy_after_each_stage_with_its_interval(tmp_path: Path) -> None:
    experiment, records = EXPERIMENTS[0], Records(tmp_path / "learning.json")
    found = finding(stages_with(0.0, 0.6, 0.82, 0.75))
    records.keep(
        experiment, Record(experiment.fingerprint, experiment.starter, experiment.settings, "abc", 200, 300, found)
    )
    (row,) = (line for line in page(ALL, records).splitlines() if line.startswith("| pipeline, seed 0"))
    for part in ("0%", "60% [55%, 65%]", "82% [77%, 87%]", "75% [70%, 80%]", "91%", "reached", "1.0 + 1.0 + 1.0"):
        assert f"| {part} |" in row


def test_seeds_differ_in_every_stage_of_every_run_and_the_first_is_as_shipped() -> None:
    seeds = []
    for experiment in EXPERIMENTS:
        _, config = load_config(experiment.path, experiment.settings)
        assert isinstance(config, PipelineConfig)
        seeds += [stage_config(config, stage).seed for stage in config.stages]
    assert len(set(seeds)) == len(seeds)
    assert load_config(EXPERIMENTS[0].path, EXPERIMENTS[0].settings) == load_config(EXPERIMENTS[0].path)
