"""The plan that a run keeps: what it goes by, and that a damaged one does no harm."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tiny_configs import tiny_config

import flows
from flows.durable.plan_kept import planned, planned_completion, planned_cost
from gateway.launch import GatewayProcess
from tasks.run_folder import RunFolder


def assumed(summary: dict[str, Any]) -> dict[str, Any]:
    assumptions: dict[str, Any] = json.loads((Path(summary["run_folder"]) / "plan.json").read_text())["assumptions"]
    return assumptions


async def test_a_run_plans_its_completions_by_the_run_before_it_which_drew_such(
    local: GatewayProcess, tmp_path: Path
) -> None:
    config = tiny_config("grpo", tmp_path, cycles=1)
    first, second = await flows.grpo(config), await flows.grpo(config)
    assert assumed(first)["completion_tokens_source"] == "half_of_max_tokens"
    assert assumed(second)["earlier_run"] == first["run_folder"]
    (row,) = map(json.loads, (Path(first["run_folder"]) / "metrics.jsonl").read_text().splitlines())
    assert assumed(second)["completion_tokens"] == row["completion_tokens_mean"]


@pytest.mark.parametrize("text", ["{}", "[]", "null", '{"operations": {"sam', '{"operations": 3, "assumptions": []}'])
def test_a_damaged_plan_says_nothing_and_fails_nothing(text: str, tmp_path: Path) -> None:
    folder = RunFolder.open(tmp_path, "mine", "a-flow-run")
    (folder.path / "plan.json").write_text(text)
    assert planned(folder) is None
    assert planned_cost(folder) is None
    assert planned_completion(folder) is None
