from __future__ import annotations

import io

import pytest
from rich.console import Console

from cli.measured import gain_told, measured
from cli.progress import RunProgress, headline
from tasks.events import Event

EVENTS = [
    Event(
        "prepared", {"algorithm": "grpo", "model": "tiny", "cycles": 2, "train": 66, "heldout": 24, "folder": "runs/a"}
    ),
    Event("session_requested"),
    Event("session_created", {"session_id": "ses_a"}),
    Event("session_opened", {"session_id": "ses_a", "run_id": "run_a"}),
    Event("evaluated", {"when": "before", "accuracy": 0.125, "samples": 4, "prompts": 24, "temperature": 1.0}),
    Event(
        "cycle", {"cycle": 0, "cycles": 2, "metrics": {"reward_mean": 0.5, "tokens/sampled": 700, "seconds/cycle": 60}}
    ),
    Event("block_saved", {"cycle": 0, "state_id": "st_a", "tokens": 700}),
    Event(
        "cycle", {"cycle": 1, "cycles": 2, "metrics": {"reward_mean": 0.9, "tokens/sampled": 800, "seconds/cycle": 60}}
    ),
    Event("exported", {"path": "runs/a/adapter", "sha256": "ab"}),
]


def shown(*, terminal: bool) -> tuple[str, RunProgress]:
    stream = io.StringIO()
    with RunProgress(Console(file=stream, force_terminal=terminal, width=160)) as progress:
        for event in EVENTS:
            progress(event)
    return stream.getvalue(), progress


def test_without_a_terminal_there_is_a_plain_line_for_each_cycle() -> None:
    text, _ = shown(terminal=False)
    assert "\x1b" not in text
    assert "grpo on tiny: 2 cycles, 66 training and 24 held-out examples; run folder runs/a" in text
    assert "Held out, before training: accuracy 12.5% (4 × 24 replies at temperature 1)" in text
    assert "cycle 1/2  reward 0.500  700 tokens  ETA 1:00" in text
    assert "cycle 2/2  reward 0.900  1,500 tokens  ETA 0:00" in text
    assert "Adapter in runs/a/adapter" in text


def test_on_a_terminal_there_is_a_bar_that_ends_full() -> None:
    text, _ = shown(terminal=True)
    assert "━" in text
    assert "2/2" in text
    assert "1,500 tokens" in text


def test_the_bar_of_a_pipeline_says_which_stage_of_how_many() -> None:
    stream = io.StringIO()
    with RunProgress(Console(file=stream, force_terminal=True, width=160)) as progress:
        progress(Event("pipeline", {"name": "chain", "folder": "runs/chain", "stages": ["sft", "rl"]}))
        progress(Event("stage", {"name": "rl", "algorithm": "grpo", "number": 2, "stages": 2}))
        for event in EVENTS[:6]:
            progress(event)
    assert "2/2 rl" in stream.getvalue().replace("\x1b[1m", "").replace("\x1b[0m", "")


def test_it_remembers_what_an_error_message_needs() -> None:
    _, progress = shown(terminal=False)
    assert progress.allocated
    assert progress.folder == "runs/a"
    assert list(progress.sessions) == ["ses_a"]


def told(*events: Event) -> tuple[str, RunProgress]:
    stream = io.StringIO()
    progress = RunProgress(Console(file=stream, width=160))
    for event in events:
        progress(event)
    return stream.getvalue(), progress


def test_a_session_that_was_asked_for_may_be_billed_before_its_id_is_known_and_is_forgotten_once_closed() -> None:
    _, progress = told(Event("session_requested"))
    assert (progress.allocated, progress.asking) == (True, True)
    for created in ("ses_a", "ses_b"):
        progress(Event("session_created", {"session_id": created}))
    progress(Event("session_closed", {"session_id": "ses_a"}))
    assert (progress.asking, list(progress.sessions)) == (False, ["ses_b"])


def test_what_is_left_of_an_earlier_attempt_is_told_and_is_none_of_this_ones_doing() -> None:
    text, progress = told(
        Event("closing", {"message": "waiting for run run_a: cancelling, 4 s"}),
        Event("verdict", {"message": "left by an earlier attempt: session ses_a closed", "closed": True}),
    )
    assert text == "waiting for run run_a: cancelling, 4 s\nleft by an earlier attempt: session ses_a closed\n"
    assert not progress.allocated


def test_cycles_that_an_earlier_attempt_has_trained_are_told_once_where_training_goes_on() -> None:
    text, _ = told(
        *(Event("block_saved", {"cycle": cycle, "state_id": "st_a", "tokens": 400}) for cycle in (0, 1)),
        Event("session_opened", {"session_id": "ses_a", "run_id": "run_a"}),
        Event("cycle", {"cycle": 2, "cycles": 3, "metrics": {"reward_mean": 0.5, "tokens/sampled": 700}}),
    )
    assert text == (
        "Session ses_a, run run_a, going on after cycle 2\ncycle 3/3  reward 0.500  1,500 tokens  ETA 0:00\n"
    )


@pytest.mark.parametrize(("go_on", "word"), [(True, "Going on"), (False, "Declined")])
def test_a_question_has_no_marks_in_the_terminal_and_what_was_answered_is_said(
    go_on: bool, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    question = f"**budget.max_cost is reached.** Nothing is billed.\n\n- about `4` more {'x' * 300}\n- go?\n"
    flow_run_id = "6f1c2a9e-0000-4000-8000-000000000000"
    text, _ = told(
        Event("paused", {"question": question, "flow_run_id": flow_run_id, "timeout_s": 3600}),
        Event("resumed", {"go_on": go_on}),
    )
    assert text.startswith(
        f"\nbudget.max_cost is reached. Nothing is billed.\n\n • about 4 more {'x' * 300}\n • go?\n\nWaiting up to 1 h"
    )
    assert text.endswith(f"\n{word}\n")


def test_a_warning_of_the_flow_is_told_while_it_runs_on_a_terminal_too() -> None:
    stream = io.StringIO()
    with RunProgress(Console(file=stream, force_terminal=True, width=160)) as progress:
        progress(EVENTS[0])
        progress(
            Event("warning", {"message": "going on from state st_a of cycle 1; 1 finished block is trained again"})
        )
    assert "Warning: going on from state st_a of cycle 1; 1 finished block is trained again" in stream.getvalue()


@pytest.mark.parametrize("warnings", [[], ["temperature 0.7: ratios will be off"]])
def test_warnings_are_shown_before_anything_is_trained(warnings: list[str]) -> None:
    stream = io.StringIO()
    with RunProgress(Console(file=stream, width=160)) as progress:
        progress(Event("prepared", EVENTS[0].facts | {"warnings": warnings}))
    assert [line for line in stream.getvalue().splitlines() if line.startswith("Warning")] == [
        f"Warning: {warning}" for warning in warnings
    ]


@pytest.mark.parametrize(
    ("metrics", "line"),
    [
        ({"teacher_kl": 2.25, "datums": 8}, "teacher KL 2.250"),
        ({"margin": -0.125, "loss": 0.7, "loss_per_token": 3.5}, "margin -0.125"),
        ({"loss_per_token": 3.5}, "loss/token 3.500"),
        (
            {"reward_mean": 1.0, "zero_signal_fraction": 1.0, "datums": 0},
            "nothing trained  reward 1.000  no signal 1.000",
        ),
        (
            {"reward_mean": 1.0, "datums": 0, "skipped/resample_exhausted": 1},
            "skipped: resample_exhausted  reward 1.000",
        ),
        ({"reward_mean": 0.25, "best_reward": 0.75}, "reward 0.250  best 0.750"),
    ],
)
def test_a_cycle_is_told_by_the_number_that_its_algorithm_is_about(metrics: dict[str, float], line: str) -> None:
    assert headline(metrics) == line


def test_a_margin_is_told_with_its_share() -> None:
    assert measured({"margin": 0.5, "preference_accuracy": 0.75}) == "margin 0.500 (75.0% of the pairs positive)"


SURE = {
    "when": "cycle-8",
    "cycle": 8,
    "accuracy": 0.5417,
    "pass_at": {"pass@4": 0.8333},
    "greedy_accuracy": 0.625,
    "intervals": {"accuracy": (0.466, 0.614), "pass@4": (0.641, 0.933), "greedy_accuracy": (0.427, 0.788)},
    "samples": 4,
    "prompts": 24,
    "temperature": 1.0,
}


def test_a_measurement_between_blocks_is_told_with_its_cycle_and_how_sure_one_can_be_of_each_number() -> None:
    text, _ = told(Event("evaluated", SURE))
    assert text == (
        "Held out, cycle 8: accuracy 54.2% [47, 61] (4 × 24 replies at temperature 1), pass@4 83.3% [64, 93], greedy "
        "62.5% [43, 79]; in brackets 95% intervals\n"
    )


def test_a_gain_is_told_in_points_and_may_be_none() -> None:
    assert (
        gain_told({"gain": 0.412, "interval": (0.33, 0.48)}) == "+41.2 points [95%: 33, 48], compared prompt by prompt"
    )
    assert gain_told({"gain": -0.05, "interval": (-0.2, 0.1)}).startswith("-5.0 points [95%: -20, 10],")
