"""Runs with what adds to a plan, against the ledger; a plain run of each algorithm: test_every_flow.py."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest
from flow_probes import Taught, metrics, planned, typically
from tiny_configs import fixed_config, tiny_config

import flows
from flows.checks.prepare import prepare
from flows.counts.part_tokens import least_operations
from gateway.launch import GatewayProcess

MEASURED = {"samples": 2, "max_prompts": 4, "greedy": True}

LONG = "x" * 3000
"""More than `tiny` has room for."""

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


@pytest.mark.parametrize("algorithm", ["sft", "opd", "ppo_critic"])
async def test_what_does_not_fit_the_context_is_neither_planned_nor_billed_nor_asked_of_a_budget(
    algorithm: str, taught: Taught, local: GatewayProcess, tmp_path: Path
) -> None:
    """Of a batch of one, whole cycles have nothing to send; of what is held out, two in three fit."""
    for name, count in (("train", 4), ("heldout", 3)):
        rows = [{"prompt": f"{name} {place}? {LONG * (place == 1)}", "answer": "2"} for place in range(count)]
        (tmp_path / name).write_text("\n".join(map(json.dumps, rows)))
    fields = {
        "data": {"source": str(tmp_path / "train"), "heldout": str(tmp_path / "heldout")},
        "cycles": 5,
        "save_every": 5,
        "evaluation": MEASURED,
        **({"batch_size": 1} if algorithm == "sft" else {"groups_per_cycle": 1}),
    }
    teacher = (await taught("local"))["state_id"] if algorithm == "opd" else ""
    config = fixed_config(algorithm, tmp_path / "runs", teacher=teacher, **fields)
    summary = await flows.FLOWS[algorithm](config)
    assert 0 < sum(not row["datums"] for row in metrics(summary)) < 5, "some cycles have nothing to send, and some have"
    plan, billed = await planned(summary), Counter(summary["operations"])
    assert typically(plan.operations) == billed
    assert typically(plan.tokens) == Counter(summary["tokens"])
    client, prepared = await prepare(algorithm, config)
    await client.aclose()
    assert least_operations(prepared) <= billed


@pytest.mark.parametrize(
    ("algorithm", "fields"),
    [("ttt", {}), ("sdpo", {"feedback": "sibling"}), ("sdpo", {"feedback": "verifier:reveal"}), ("opsd", {})],
    ids=["ttt", "sdpo-sibling", "sdpo-verifier", "opsd"],
)
async def test_where_prompts_hold_what_was_sampled_and_completions_end_when_they_end_a_run_is_within_its_plan(
    algorithm: str, fields: dict[str, Any], local: GatewayProcess, tmp_path: Path
) -> None:
    summary = await flows.FLOWS[algorithm](tiny_config(algorithm, tmp_path, sampling={"max_tokens": 40}, **fields))
    plan = await planned(summary)
    assert not plan.tokens["sampled"].exact, "completions of many lengths"
    for spans, found in ((plan.operations, summary["operations"]), (plan.tokens, summary["tokens"])):
        assert found.keys() <= spans.keys()
        assert all(span.least <= found.get(name, 0) <= span.most for name, span in spans.items()), (spans, found)


@pytest.mark.parametrize("seeds", [5, pytest.param(20, marks=pytest.mark.slow)])
async def test_runs_of_dapo_are_within_its_plan_and_their_mean_is_what_is_typical(
    seeds: int, local: GatewayProcess, tmp_path: Path
) -> None:
    runs = []
    for seed in range(seeds):
        runs.append(await flows.dapo(_dapo(tmp_path, seed)))
    rows = [row for run in runs for row in metrics(run)]
    assert {row["resample_rounds"] for row in rows} == {0, 1}, "some cycles draw again, and some do not"
    assert {bool(row["datums"]) for row in rows} == {True, False}, "some cycles are skipped, and some are not"
    plan = await planned(runs[0])
    for spans, kind in ((plan.operations, "operations"), (plan.tokens, "tokens")):
        for name, span in spans.items():
            found = [run[kind].get(name, 0) for run in runs]
            assert span.least <= min(found) <= max(found) <= span.most, (name, span, found)
            # Three standard errors, as means of such runs are off by less 99 times in 100; operations are whole ones.
            chance = 3 * stdev(found) / seeds**0.5 + (0.5 if kind == "operations" else 0)
            assert fmean(found) == pytest.approx(span.typical, abs=chance + 1e-9), (name, span, found)


def _dapo(folder: Path, seed: int) -> Any:
    """Half of the groups have a signal, as of 3 completions to problems of all difficulties; nothing is learnt."""
    return fixed_config(
        "dapo",
        folder,
        teacher="",
        name=f"dapo-{seed}",
        seed=seed,
        optimizer={"learning_rate": 1e-12},
        groups_per_cycle=2,
        group_size=3,
        rewards=[{"function": "told_apart:coin"}],
        resample={"drop_overlong": False, "max_rounds": 1},
    )
