"""How operations are planned; whole runs against the ledger: test_plan_is_the_ledger.py, test_every_flow.py."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from flow_probes import Taught, ledger, plan_of
from tiny_configs import tiny_config

import flows
from flows.counts.operations import planned_measurements, planned_operations, planned_sessions
from gateway.launch import GatewayProcess


def billed(gateway: GatewayProcess, summary: dict[str, Any]) -> Counter[str]:
    return sum(ledger(gateway, summary["flow_run_id"]).values(), Counter[str]())


@pytest.mark.parametrize("max_operations", [0, 3, 100])
async def test_with_resampling_the_plan_is_a_bound_that_a_hopeless_run_reaches(
    max_operations: int, local: GatewayProcess, taught: Taught, tmp_path: Path
) -> None:
    hopeless = tiny_config(
        "dapo",
        tmp_path,
        state_id=(await taught("local"))["state_id"],
        cycles=1,
        rewards=[{"function": "regex", "arguments": {"pattern": "never said"}}],
        resample={"max_operations": max_operations, "max_rounds": 2},
    )
    summary = await flows.dapo(hopeless)
    plan, cost = plan_of(summary), billed(local, summary)
    assert plan["sample"] == cost["sample"] == 2 + min(max_operations, 4)
    assert plan - cost == Counter(forward_backward=1, optim_step=1), "no group had a signal"


def test_a_run_that_resamples_and_has_a_reference_is_bounded_by_what_may_be_kept(tmp_path: Path) -> None:
    config = tiny_config("dapo", tmp_path, kl={"coef": 0.1}, resample={"max_operations": 5, "target_group_size": 6})
    assert planned_operations("dapo", config, 0)["logprobs"] == 2 * (2 * 4 + 5 * 6)


def test_measurements_are_before_between_and_after(tmp_path: Path) -> None:
    measured = {"enabled": True, "every": 4}
    config = tiny_config("grpo", tmp_path, cycles=12, save_every=2, evaluation=measured)
    assert planned_measurements(config, 8) == 4, "before, after 4, after 8, after the last"
    assert planned_measurements(config, 0) == 0
    assert planned_measurements(tiny_config("grpo", tmp_path, cycles=13, save_every=2, evaluation=measured), 8) == 5


def test_a_million_cycles_are_planned_without_counting_them(tmp_path: Path) -> None:
    config = tiny_config("grpo", tmp_path, cycles=1_000_000)
    assert planned_operations("grpo", config, 0)["sample"] == 2_000_000


def test_a_teacher_with_a_session_of_its_own_makes_it_two(tmp_path: Path) -> None:
    own, shared = ({"state_id": "state", "session": kind} for kind in ("own", "shared"))
    assert planned_sessions(tiny_config("opd", tmp_path, teacher=own)) == 2
    assert planned_sessions(tiny_config("opd", tmp_path, teacher=shared)) == 1
    assert planned_sessions(tiny_config("custom", tmp_path, teacher=own)) == 2
    assert planned_sessions(tiny_config("grpo", tmp_path)) == 1
    assert planned_sessions(tiny_config("custom", tmp_path)) == 1
