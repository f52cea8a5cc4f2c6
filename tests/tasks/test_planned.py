from typing import Any

from tasks.planned import planned_markdown, planned_together, planned_told


def span(least: float, typical: float, most: float) -> dict[str, float]:
    return {"least": least, "typical": typical, "most": most}


PLAN = {
    "operations": {"sample": span(4, 6.4, 1200), "save_state": span(1, 1, 1)},
    "tokens": {"prefill": span(80, 120.5, 1800)},
}


def summary(**billed: int) -> dict[str, Any]:
    return {"planned": PLAN, "operations": {"save_state": 1, **billed}, "tokens": {"prefill": 1200}}


def test_what_was_billed_as_planned_is_said_to_be_and_what_was_not_is_named() -> None:
    assert planned_told(summary(sample=6)) == "typically 7 operations, kind by kind as billed; tokens: 120 prefill"
    assert planned_told(summary(sample=9, logprobs=2)) == (
        "typically 7 operations (logprobs 0 planned, 2 billed; sample 6 planned, 9 billed); tokens: 120 prefill"
    )


def test_of_a_run_that_has_stopped_the_plan_is_said_to_be_of_the_whole() -> None:
    stopped = {**summary(sample=6), "stopped": "budget.max_operations = 7: …"}
    assert str(planned_told(stopped)).startswith("for the whole run, typically 7 operations")
    assert "| planned, for the whole run, typically |" in planned_markdown(stopped)


def test_what_was_done_again_was_billed_too() -> None:
    again = {"operations": 2, "tokens": 30, "by_kind": {"sample": 2}, "tokens_by_kind": {"prefill": 30}}
    assert "sample 6 planned, 11 billed" in str(planned_told({**summary(sample=9), "redone": again}))


def test_the_report_has_a_row_for_each_kind() -> None:
    assert planned_markdown(summary(sample=9)).splitlines()[2:] == [
        "| sample | 6 | 1,200 | 9 |",
        "| save_state | 1 | 1 | 1 |",
        "| prefill | 120 | 1,800 | 1,200 |",
    ]


def test_a_run_without_a_plan_on_record_says_nothing() -> None:
    for record in ({"operations": {"sample": 1}}, {"planned": None, "operations": {"sample": 1}}):
        assert planned_told(record) is None
        assert planned_markdown(record) == ""


def test_stages_are_planned_together_if_all_of_them_are() -> None:
    both = planned_together([PLAN, PLAN])
    assert both is not None
    assert both["operations"]["sample"] == span(8, 12.8, 2400)
    assert planned_together([PLAN, None]) is None
    assert planned_together([]) is None
