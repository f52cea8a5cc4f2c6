"""What the terminal says when a run has ended: from its summary and folder, or from the error that ended it."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from prefect.exceptions import Abort, CancelledRun
from rich.console import Console

from cli.failures import RunFailedError, in_words
from cli.run_data import Endpoints
from cli.summary import show_summary
from cli.training import watch


def shown(folder: Path, **facts: Any) -> str:
    stream = io.StringIO()
    summary = {
        "operations": {"optim_step": 2, "forward_backward": 2},
        "tokens": {"trained": 7},
        "open_sessions": 0,
        "run_folder": str(folder),
        "adapter": str(folder / "adapter"),
        "artifact_id": "art_a",
    }
    show_summary(summary | facts, Console(file=stream, width=200))
    return stream.getvalue()


def test_a_run_that_took_no_step_is_told_from_one_that_trained(tmp_path: Path) -> None:
    assert "no optimizer step was taken; the adapter is the initial one" in shown(tmp_path, operations={"sample": 4})
    assert "Warning" not in shown(tmp_path)


def test_the_bill_holds_what_was_done_again_and_says_how_much_that_was(tmp_path: Path) -> None:
    redone = {"operations": 19, "tokens": 4321, "by_kind": {"sample": 19}, "tokens_by_kind": {"sampled": 4321}}
    lines = shown(tmp_path, redone=redone).splitlines()
    billed = lines.index("Billed:    23 operations; tokens: 4,321 sampled, 7 trained; open sessions: 0")
    assert lines[billed + 1].startswith("           of which 19 operations, 4,321 tokens: blocks that")
    assert "Cost:      6.00 USD billed" in shown(tmp_path, cost={"currency": "USD", "billed": 6})


def test_where_the_endpoint_did_not_say_the_open_sessions_are_not_known(tmp_path: Path) -> None:
    assert "open sessions: not known\n" in shown(tmp_path, open_sessions=None)


def test_a_run_that_a_rule_stopped_says_which(tmp_path: Path) -> None:
    assert "Stopped early: kl_reference is 3" in shown(tmp_path, stopped="kl_reference is 3, above stop.max_kl = 2")
    assert "Stopped" not in shown(tmp_path, stopped=None)


def test_the_best_solution_is_one_line_that_names_its_file_and_its_cycle_as_people_count(tmp_path: Path) -> None:
    best = {"reward": 1.07, "cycle": 2, "solution": "The quick\nbrown fox " + "jumps " * 50}
    (tmp_path / "best.json").write_text(json.dumps(best))
    line = next(line for line in shown(tmp_path).splitlines() if line.startswith("Best:"))
    assert f"1.070 in cycle 3 → {tmp_path / 'best.json'}: The quick brown fox jumps" in line
    assert line.endswith("jumps …")


def test_without_a_search_no_best_solution_is_spoken_of(tmp_path: Path) -> None:
    assert "Best" not in shown(tmp_path)


def chained(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValueError("rank is too large"), "rank is too large"),
        (RuntimeError(None), "RuntimeError"),
        (chained(RuntimeError(None), TimeoutError()), "RuntimeError, from TimeoutError"),
        (chained(TimeoutError(), OSError("no route to host")), "TimeoutError, from OSError: no route to host"),
    ],
)
def test_an_error_that_says_nothing_is_told_by_what_it_is_and_came_from(error: Exception, words: str) -> None:
    assert in_words(error) == words


def test_a_process_that_gives_way_to_another_says_so_in_a_sentence() -> None:
    async def given_way() -> dict[str, Any]:
        raise Abort("a newer attempt has begun")

    nothing = Endpoints(None, None, None, None, "")
    with pytest.raises(RunFailedError, match=r"^runs/r is left to another process, which goes on with it \(a newer"):
        watch(given_way, Console(file=io.StringIO()), nothing, Path("runs/r"))


def test_a_run_that_a_person_declines_ends_with_their_word_and_the_way_to_be_asked_again() -> None:
    async def declined() -> dict[str, Any]:
        raise CancelledRun("declined by a person (gate-rl)")

    nothing = Endpoints(None, None, None, None, "")
    with pytest.raises(RunFailedError) as raised:
        watch(declined, Console(file=io.StringIO()), nothing, Path("runs/r"))
    assert str(raised.value) == (
        "declined by a person (gate-rl): the run ends here\n"
        "to go on: `whitney run --resume runs/r`; a resume asks again"
    )
