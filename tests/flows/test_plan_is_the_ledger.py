"""Runs with what adds to a plan, against the ledger; a plain run of each algorithm: test_every_flow.py."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from flow_probes import Taught, metrics, planned, typically
from tiny_configs import fixed_config

import flows
from flows.checks.planned_spans import expected_draws, most_draws
from gateway.launch import GatewayProcess

MEASURED = {"samples": 2, "max_prompts": 4, "greedy": True}

# Runs with everything that adds to the plan. In none of them a cycle goes without a step.
LARGER: dict[str, tuple[str, dict[str, Any]]] = {
    "a reference, two steps, measured between": (
        "grpo",
        {
            "kl": {"coef": 0.1},
            "steps_per_batch": 2,
            "cycles": 3,
            "save_every": 1,
            "evaluation": {**MEASURED, "every": 1},
        },
    ),
    "a critic, two steps, measured": ("ppo_critic", {"steps_per_batch": 2, "save_every": 1, "evaluation": MEASURED}),
    "a teacher's own session, measured": ("opd", {"evaluation": MEASURED}),
    "the held-out loss in two bodies": (
        "sft",
        {
            "sampling": {"max_tokens": 1, "ignore_eos": True},
            "data": {"source": "addition-2digit"},
            "evaluation": {"samples": 1, "max_prompts": 70},
        },
    ),
    "the held-out margin": ("dpo", {"evaluation": {"samples": 1, "max_prompts": 40}}),
    "more than an epoch": ("grpo", {"cycles": 3, "data": {"source": "addition-1digit", "limit": 3}}),
    "every start is the bare problem": ("ttt", {"reuse": False}),
}


@pytest.mark.parametrize("case", LARGER)
async def test_operations_and_tokens_are_planned_to_the_last_one_with_every_option_that_adds_to_them(
    case: str, taught: Taught, local: GatewayProcess, tmp_path: Path
) -> None:
    algorithm, fields = LARGER[case]
    teacher = (await taught("local"))["state_id"] if algorithm == "opd" else ""
    summary = await flows.FLOWS[algorithm](fixed_config(algorithm, tmp_path, teacher=teacher, **fields))
    assert all(row["datums"] for row in metrics(summary)), "a cycle without a step costs less"
    plan = await planned(summary)
    assert typically(plan.operations) == Counter(summary["operations"])
    assert typically(plan.tokens) == Counter(summary["tokens"])


async def test_what_dapo_draws_again_is_between_the_bounds_and_near_the_typical_number_where_tasks_are_of_all_kinds(
    local: GatewayProcess, tmp_path: Path
) -> None:
    config = fixed_config(
        "dapo",
        tmp_path,
        teacher="",
        optimizer={"learning_rate": 1e-12},
        cycles=6,
        groups_per_cycle=8,
        group_size=3,
        rewards=[{"function": "told_apart:coin"}],
        resample={"drop_overlong": False, "max_rounds": 2},
    )
    summary = await flows.dapo(config)
    drawn = [row["resample_operations"] for row in metrics(summary)]
    assert all(0 <= number <= most_draws(config) for number in drawn)
    assert len(set(drawn)) > 1
    plan = await planned(summary)
    for spans, found in ((plan.operations, summary["operations"]), (plan.tokens, summary["tokens"])):
        assert all(span.least <= found.get(name, 0) <= span.most for name, span in spans.items()), (spans, found)
    assert fmean(drawn) == pytest.approx(expected_draws(config), rel=0.25)  # over 20 cycles 6.15 of 6
