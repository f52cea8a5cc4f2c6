from __future__ import annotations

from typing import Any

import pytest

from tasks.bill import again_told, bill_markdown, bill_told, cost_told, longer_told
from tasks.money import as_money, money
from tasks.stopped import command_to_go_on, digits, stopped_markdown

RUN: dict[str, Any] = {
    "operations": {"sample": 8, "export_lora": 1},
    "tokens": {"prefill": 1200, "sampled": 34},
    "redone": {"operations": 1, "tokens": 20, "by_kind": {"sample": 1}, "tokens_by_kind": {"sampled": 20}},
    "run_folder": "runs/my run",
}
ONCE = {**RUN, "redone": {"operations": 0, "tokens": 0, "by_kind": {}, "tokens_by_kind": {}}}
STOPPED = {
    **RUN,
    "stopped": "budget.max_cost = 8: 6 used; cycle 3 may need 3 more, its end included",
    "budget": {"reached": "budget.max_cost", "left_out": ["cycle 3"], "go_on_with": 9.25},
}


@pytest.mark.parametrize(
    ("amount", "shown"),
    [
        (0, "0.00"),
        (50150, "50,150.00"),
        (0.1240222839, "0.12"),
        (0.01, "0.01"),
        (0.00996, "0.0100"),
        (9.29833428e-08, "0.000000093"),
        (-0.004, "-0.0040"),
    ],
)
def test_money_is_written_to_the_cent_and_less_than_one_with_the_digits_that_tell(amount: float, shown: str) -> None:
    assert money(amount) == shown
    assert as_money(amount) == float(shown.replace(",", ""))


def test_everything_that_was_billed_is_one_sum_and_what_was_done_again_is_said_to_be_part_of_it() -> None:
    assert bill_told(RUN) == "10 operations; tokens: 1,200 prefill, 54 sampled"
    assert again_told(RUN) == (
        "of which 1 operation, 20 tokens: blocks that were begun and not saved, or another export"
    )
    assert bill_told(ONCE) == "9 operations; tokens: 1,200 prefill, 34 sampled"
    assert again_told(ONCE) is None
    assert bill_told({**ONCE, "operations": {"sample": 1}, "tokens": {}}) == "1 operation; tokens: none"
    assert "could not be asked" in str(again_told({**RUN, "redone": None}))


def test_what_was_paid_is_told_beside_what_was_planned() -> None:
    cost = {"currency": "EUR", "billed": 6.0, "planned": {"least": 1.0, "typical": 7.5, "most": 0.004}}
    assert cost_told({"cost": cost}) == "6.00 EUR billed; planned: typically 7.50, at most 0.0040"
    assert cost_told({"cost": {**cost, "planned": None}}) == "6.00 EUR billed"
    assert "; planned for the whole run: " in str(cost_told({**STOPPED, "cost": cost}))
    assert cost_told({"cost": None}) is None
    assert bill_markdown({**RUN, "cost": cost}).splitlines()[0] == f"- Billed: {bill_told(RUN)}"
    assert bill_markdown({**RUN, "cost": cost}).splitlines()[2].startswith("- Cost: 6.00 EUR")


def test_completions_more_than_three_times_as_long_as_planned_are_spoken_of() -> None:
    assert longer_told({"completion_tokens": {"mean": 30.0, "planned": 10.0}}) is None
    assert longer_told({"completion_tokens": None}) is None
    assert longer_told({"completion_tokens": {"mean": 30.6, "planned": 10.0}}) == (
        "Completions were longer than planned: 31 tokens on average, planned 10; "
        "`whitney plan CONFIG --completion-tokens 31` says so next time"
    )


def test_a_run_that_its_budget_has_stopped_says_so_first_and_how_to_go_on_with_a_number() -> None:
    assert stopped_markdown(STOPPED).splitlines() == [
        "**Stopped early**: budget.max_cost = 8: 6 used; cycle 3 may need 3 more, its end included",
        "",
        "- left out: cycle 3",
        "- to go on: `whitney run --resume 'runs/my run' --set budget.max_cost=9.25`",
    ]
    assert stopped_markdown(RUN) == ""


@pytest.mark.parametrize(
    ("budget", "command"),
    [
        ({"reached": "budget.max_operations", "go_on_with": 800}, "'runs/my run' --set budget.max_operations=800"),
        ({"reached": "budget.max_operations"}, "'runs/my run' --set budget.max_operations=MORE"),
        ({"reached": "pipeline.budget.max_tokens", "go_on_with": 9000}, "runs --set budget.max_tokens=9000"),
        ({"reached": "budget.max_tokens", "go_on_with": None}, None),
        ({"reached": None}, None),
    ],
)
def test_a_stage_goes_on_with_its_pipeline_or_is_finished(budget: dict[str, Any], command: str | None) -> None:
    expected = command and f"whitney run --resume {command}"
    assert command_to_go_on({**STOPPED, "budget": budget}) == expected


def test_a_number_for_a_configuration_has_no_exponent() -> None:
    assert [digits(value) for value in (800.0, 12.5, 9.3e-8)] == ["800", "12.5", "0.000000093"]
