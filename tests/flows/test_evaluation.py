"""Held-out measurements: what is refused, what is measured when, and that a Retry pays for none of it twice."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from flow_probes import Taught, first_attempt, ledger, lines, lose_answer, metrics, retry
from tiny_configs import grpo_config, sft_config, tiny_config

import flows
from algorithms import clustered_interval, pass_at_k
from flows.config import EvaluationConfig, GrpoConfig
from flows.durable.children import completed_children
from flows.durable.outcome import EvaluationOutcome
from gateway.launch import GatewayProcess
from gateway.storage import DataDirectory
from tasks.events import Event, listening
from tasks.glossary import EVALUATION_GLOSSARY

EVERY = {"samples": 4, "max_prompts": 6, "every": 1, "pass_at": [1, 2], "greedy": True}


def every_cycle(folder: Path, state_id: str, **fields: Any) -> GrpoConfig:
    """Three blocks of a cycle, from a model that answers, with a measurement after each."""
    config: GrpoConfig = tiny_config(
        "grpo", folder, state_id=state_id, **{"cycles": 3, "save_every": 1, "evaluation": EVERY, **fields}
    )
    return config


def evaluations(folder: Path) -> list[dict[str, Any]]:
    return lines(folder / "evaluations.jsonl")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"pass_at": [1, 8]}, r"pass_at = \[1, 8\]: pass@8 cannot be told from samples = 4 .*set samples = 8 or more"),
        ({"pass_at": [2], "temperature": 0}, "all tries at a prompt would be the same; leave it out or raise"),
        ({"pass_at": [0]}, "greater than or equal to 1"),
        ({"every": 0}, "greater than or equal to 1"),
    ],
)
def test_a_measurement_that_says_nothing_is_refused_with_the_way_out(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        EvaluationConfig.model_validate(fields)


@pytest.mark.parametrize("algorithm", ["sft", "dpo", "grpo", "ttt"])
def test_a_measurement_within_a_block_is_refused_naming_both_settings(algorithm: str, tmp_path: Path) -> None:
    config = tiny_config(algorithm, tmp_path, save_every=4, evaluation={"every": 6})
    wrong = r"evaluation.every = 6 is no multiple of save_every = 4.*set evaluation.every = 8, or save_every = 6"
    with pytest.raises(ValueError, match=wrong):
        config.check()
    tiny_config(algorithm, tmp_path, save_every=4, evaluation={"every": 8}).check()


@pytest.mark.parametrize(
    ("every", "cycles", "after"), [(None, 4, []), (1, 4, [1, 2, 3]), (2, 5, [2, 4]), (2, 4, [2]), (8, 4, [])]
)
def test_what_comes_after_the_last_cycle_is_measured_once(every: int | None, cycles: int, after: list[int]) -> None:
    section = EvaluationConfig(every=every)
    assert [trained for trained in range(1, cycles + 1) if section.is_due(trained, cycles)] == after


def test_an_outcome_of_an_older_version_is_still_read() -> None:
    old = {"when": "after", "state_id": "st_a", "prompts": 1, "skipped": 0, "samples": 2, "unscored": 0}
    outcome = EvaluationOutcome.model_validate({**old, "temperature": 1.0, "attempt": 1, "usage": {}})
    assert (outcome.pass_at, outcome.intervals, outcome.correct, outcome.cycle) == ({}, {}, [], None)


async def test_measuring_every_cycle_changes_nothing_of_the_training_and_everything_is_in_the_run_folder(
    local: GatewayProcess, taught: Taught, tmp_path: Path
) -> None:
    state_id = (await taught("local"))["state_id"]
    heard: list[Event] = []
    with listening(heard.append):
        summary = await flows.grpo(every_cycle(tmp_path, state_id, name="measured"))
    plain = await flows.grpo(every_cycle(tmp_path, state_id, name="plain", evaluation={"enabled": False}))
    assert summary["adapter_sha256"] == plain["adapter_sha256"]

    folder = Path(summary["run_folder"])
    rows = evaluations(folder)
    assert [(row["when"], row["cycle"]) for row in rows] == [
        ("before", 0),
        ("cycle-1", 1),
        ("cycle-2", 2),
        ("after", 3),
    ]
    assert [row["state_id"] for row in rows] == [None, *(row["state_id"] for row in lines(folder / "states.jsonl"))]
    assert rows == json.loads((folder / "summary.json").read_text())["evaluations"]
    assert (summary["evaluation_before"]["when"], summary["evaluation_after"]["when"]) == ("before", "after")
    assert [event.facts["when"] for event in heard if event.kind == "evaluated"] == [row["when"] for row in rows]
    assert {key for row in rows for key in row} <= EVALUATION_GLOSSARY.keys()
    for row in rows:
        require_as_drawn(row, lines(folder / "samples" / f"evaluation-{row['when']}.jsonl"))
    low, high = summary["accuracy_gain"]["interval"]
    assert low < summary["accuracy_gain"]["gain"] < high
    billed = ledger(local, summary["flow_run_id"])["policy"]
    assert billed["sample"] == 4 * (6 + 6) + sum(row["operations/sample"] for row in metrics(summary))
    assert summary["operations"]["sample"] == billed["sample"]
    assert (summary["redone"]["operations"], len(summary["beside_blocks"])) == (0, 5)


def require_as_drawn(row: dict[str, Any], samples: list[dict[str, Any]]) -> None:
    """What a measurement says is what its samples say."""
    correct = [sum(one["reward"] == 1 for one in samples[start : start + 4]) for start in range(0, len(samples), 4)]
    assert len(correct) == row["prompts"] == 6
    for name, values in {
        "accuracy": [count / 4 for count in correct],
        "pass@1": [pass_at_k(4, count, 1) for count in correct],
        "pass@2": [pass_at_k(4, count, 2) for count in correct],
    }.items():
        found = row["accuracy"] if name == "accuracy" else row["pass_at"][name]
        assert found == pytest.approx(fmean(values))
        assert row["intervals"][name] == pytest.approx(clustered_interval(values, 4))
    low, high = row["intervals"]["greedy_accuracy"]
    assert 0 <= low <= row["greedy_accuracy"] <= high <= 1


async def test_a_retry_adopts_what_was_measured_between_blocks_and_bills_it_once(
    local: GatewayProcess, taught: Taught, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state_id = (await taught("local"))["state_id"]
    config = every_cycle(tmp_path, state_id, name="retried")
    mend = lose_answer(monkeypatch, "save_state", nth=3)
    flow_run_id, failed = await first_attempt(flows.grpo, config)
    mend()
    assert failed.is_failed()
    folder = tmp_path / "retried"
    measured = evaluations(folder)
    assert [row["when"] for row in measured] == ["before", "cycle-1", "cycle-2"]

    summary = await (await retry(flows.grpo, flow_run_id)).result()
    rows = evaluations(folder)
    assert rows[:3] == measured, "as they were"
    assert [(row["when"], row["attempt"]) for row in rows] == [*((row["when"], 1) for row in measured), ("after", 2)]
    first, second = (ledger(local, flow_run_id, attempt)["policy"]["sample"] for attempt in (1, 2))
    a_cycle = metrics(summary)[0]["operations/sample"]
    assert (first, second) == (3 * 12 + 3 * a_cycle, 12 + a_cycle)
    # What was done again is the third block, and none of the measurements.
    assert summary["redone"]["by_kind"]["sample"] == a_cycle
    assert summary["operations"]["sample"] == first + second - a_cycle


async def test_a_measurement_of_a_state_that_is_lost_is_made_again_and_no_other(
    local: GatewayProcess, taught: Taught, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state_id = (await taught("local"))["state_id"]
    mend = lose_answer(monkeypatch, "save_state", nth=3)
    flow_run_id, _ = await first_attempt(flows.grpo, every_cycle(tmp_path, state_id, name="lost"))
    mend()
    folder = tmp_path / "lost"
    before = evaluations(folder)
    DataDirectory(local.data_dir).file("state", lines(folder / "states.jsonl")[-1]["state_id"]).write_bytes(b"")
    assert (await retry(flows.grpo, flow_run_id)).is_completed()
    rows = evaluations(folder)
    assert [(row["when"], row["attempt"]) for row in rows] == [
        ("before", 1),
        ("cycle-1", 1),
        ("cycle-2", 2),
        ("after", 2),
    ]
    assert [row["state_id"] for row in rows[1:]] == [row["state_id"] for row in lines(folder / "states.jsonl")]
    # The same weights, found again: the gateway is deterministic.
    assert (rows[2]["accuracy"], rows[2]["state_id"] == before[2]["state_id"]) == (before[2]["accuracy"], False)
    outcomes = [child.outcome for child in await completed_children(str(flow_run_id))]
    assert sum(isinstance(outcome, EvaluationOutcome) for outcome in outcomes) == 4


async def test_a_run_that_stops_at_a_measured_cycle_is_not_measured_there_twice(
    local: GatewayProcess, taught: Taught, tmp_path: Path
) -> None:
    worthless = [{"function": "length", "weight": 0.0, "arguments": {"target": 3}}]
    config = grpo_config(
        tmp_path,
        rewards=worthless,
        cycles=6,
        save_every=1,
        stop={"zero_signal_streak": 2},
        evaluation={**EVERY, "every": 1},
    )
    summary = await flows.grpo(config)
    assert summary["cycles"] == 2
    assert [one["when"] for one in summary["evaluations"]] == ["before", "cycle-1", "after"]


async def test_supervised_training_is_followed_by_its_loss_and_preferences_by_their_margin(
    local: GatewayProcess, tmp_path: Path
) -> None:
    often: dict[str, Any] = {"cycles": 4, "save_every": 2, "evaluation": {"samples": 1, "max_prompts": 4, "every": 2}}
    supervised = await flows.sft(sft_config(tmp_path, **often))
    losses = [one["loss"] for one in supervised["evaluations"]]
    assert losses == sorted(losses, reverse=True)
    assert [one["cycle"] for one in supervised["evaluations"]] == [0, 2, 4]
    preferred = await flows.dpo(tiny_config("dpo", tmp_path, **often))
    margins = [one["margin"] for one in preferred["evaluations"]]
    assert margins[0] == 0 < margins[1] < margins[2]
