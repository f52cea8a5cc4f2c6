"""The chaos campaign in small: every family of faults once; and that clients which are wrong on purpose are caught."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.chaos.__main__ import QUIET
from benchmarks.chaos.campaign import Campaign, Report
from benchmarks.chaos.catalogue import FAMILIES
from benchmarks.chaos.scenario import Scenario
from benchmarks.surroundings import prefect_server


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Campaign]:
    folder = tmp_path_factory.mktemp("chaos")
    with pytest.MonkeyPatch.context() as environment:
        for name, value in QUIET.items():
            environment.setenv(name, value)
        with prefect_server(folder), Campaign(folder) as campaign:
            yield campaign


def told(report: Report) -> str:
    return "\n".join(verdict.line() for verdict in report.verdicts)


@pytest.mark.timeout(900)
def test_one_scenario_of_each_family_loses_leaks_and_repeats_nothing_and_ends_with_the_undisturbed_adapter(
    campaign: Campaign,
) -> None:
    # Two runs, a subflow within the cycle, and a stage that is handed on are what the others have and GRPO has not.
    elsewhere = ["opd:1:kill.poll-logprobs.9.after", "dapo:1:kill.post-sample.4", "pipeline:1:kill.stages.1"]
    drawn = campaign.scenarios(len(FAMILIES), seed=4, algorithms=["grpo"], save_every=[1])
    report = campaign.run([*drawn, *map(Scenario.parse, elsewhere)])
    sums = report.sums()
    assert report.holds, told(report)
    assert sums["adapters_equal"] == sums["scenarios"] == len(FAMILIES) + len(elsewhere)
    assert sums["faults"] >= sums["scenarios"]
    assert sums["attempts"] > sums["scenarios"], "most were lethal"


def test_a_client_that_takes_a_fresh_seq_id_after_a_lost_answer_is_caught_paying_twice(campaign: Campaign) -> None:
    lost = [Scenario.parse("grpo:1:drop_answer.post-forward_backward.2")]
    report = campaign.run(lost, client="broken-fresh-seq")
    assert report.sums()["double_executions"] == 1, told(report)
    assert not report.holds


def test_a_client_that_does_not_post_again_is_caught_giving_up_what_it_should_have_got_over(campaign: Campaign) -> None:
    report = campaign.run([Scenario.parse("grpo:1:reset.post-save_state.1")], client="broken-no-repost")
    assert report.sums()["needless_failures"] == 1, told(report)
    assert not report.holds


def test_a_scenario_whose_fault_never_comes_about_has_shown_nothing(campaign: Campaign) -> None:
    report = campaign.run([Scenario.parse("grpo:1:kill.post-save_state.9")])
    assert report.sums()["unfired"] == 1
    assert not report.holds


@pytest.mark.parametrize(
    "text",
    [
        "grpo:1:",
        "dapo:2:503-retry-after*3.post-sample.1",
        "opd:1:kill.poll-save_state.2.after+drop_answer.create_run.1@2",
        "sft:1:kill.outcome.1:at_once",
        "pipeline:1:kill.stages.1.after",
    ],
)
def test_a_scenario_is_what_its_id_says(text: str) -> None:
    assert str(Scenario.parse(text)) == text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("grpo", "algorithm:save_every"),
        ("grpo:one:kill.summary", "algorithm:save_every"),
        ("grpo:1:explode.summary", "'explode.summary' is no fault"),
        ("grpo:1:kill.summary:never", "at_once"),
        ("grpo:1:crash.create_run", "'create_run' is none of post-"),
        ("grpo:1:503.summary", "'summary' is none of post-"),
    ],
)
def test_an_id_that_is_none_says_what_one_looks_like(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=r"is no|has no") as raised:
        Scenario.parse(text)
    assert said in str(raised.value)


def test_a_stand_that_does_not_come_up_is_heard_of_and_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "stand-0").write_text("a file, where its folder should be")
    with Campaign(tmp_path, stands=1) as campaign, pytest.raises(NotADirectoryError):
        campaign.run([Scenario("grpo", 1)])
