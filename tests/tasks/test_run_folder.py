from __future__ import annotations

import json
import math
import resource
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tasks.run_folder import LONGEST_NUMBER_LIST, RunFolder

MINE = "0190a1b2-1111-7000-8000-000000000001"
OTHER = "0290ffff-2222-7000-8000-000000000002"


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_retry_of_the_same_flow_run_finds_its_own_folder(tmp_path: Path) -> None:
    first = RunFolder.open(tmp_path, "demo", MINE)
    assert first.path == tmp_path / "demo"
    assert RunFolder.open(tmp_path, "demo", MINE) == first


def test_a_name_that_is_taken_gets_the_owners_id_as_a_suffix_every_time(tmp_path: Path) -> None:
    other = RunFolder.open(tmp_path, "demo", OTHER)
    mine = RunFolder.open(tmp_path, "demo", MINE)
    assert mine.path == tmp_path / "demo-0190a1b2"
    assert RunFolder.open(tmp_path, "demo", MINE) == mine
    RunFolder.open(tmp_path, "demo-too", MINE)
    assert RunFolder.all_of(tmp_path, "demo") == [other, mine]


def test_a_retry_keeps_its_suffixed_folder_even_when_the_plain_name_has_become_free(tmp_path: Path) -> None:
    other = RunFolder.open(tmp_path, "demo", OTHER)
    mine = RunFolder.open(tmp_path, "demo", MINE)
    (other.path / "config.json").unlink()
    other.path.rmdir()
    assert RunFolder.open(tmp_path, "demo", MINE) == mine


def test_a_folder_that_no_run_has_signed_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "thesis.txt").write_text("mine")
    assert RunFolder.open(tmp_path, "demo", MINE).path.name == "demo-0190a1b2"


def test_runs_that_open_one_name_at_the_same_moment_get_a_folder_each(tmp_path: Path) -> None:
    owners = [f"{i:08x}-0000-7000-8000-000000000000" for i in range(16)]
    with ThreadPoolExecutor(16) as pool:
        folders = list(pool.map(lambda owner: RunFolder.open(tmp_path, "demo", owner), owners))
    assert len({folder.path for folder in folders}) == 16
    for folder, owner in zip(folders, owners, strict=True):
        assert json.loads((folder.path / "config.json").read_text())["flow_run_id"] == owner


def test_a_damaged_config_of_another_run_only_makes_its_name_taken(tmp_path: Path) -> None:
    RunFolder.open(tmp_path, "demo", OTHER).path.joinpath("config.json").write_text("5")
    assert RunFolder.open(tmp_path, "demo", MINE).path == tmp_path / "demo-0190a1b2"


def test_a_name_cannot_lead_out_of_the_root(tmp_path: Path) -> None:
    folder = RunFolder.open(tmp_path / "runs", "../../etc/pass wd", MINE)
    assert folder.path.parent == tmp_path / "runs"


def test_the_config_always_carries_its_owner(tmp_path: Path) -> None:
    folder = RunFolder.open(tmp_path, "demo", MINE)
    folder.write_config({"algorithm": "grpo", "flow_run_id": "somebody else", "output_dir": Path("runs")})
    written = json.loads((folder.path / "config.json").read_text())
    assert written == {"algorithm": "grpo", "flow_run_id": MINE, "output_dir": "runs"}


def test_metrics_hold_one_row_a_cycle_in_order_after_any_number_of_attempts(tmp_path: Path) -> None:
    folder = RunFolder.open(tmp_path, "demo", MINE)
    folder.write_metrics([{"cycle": 1, "loss": 9.0}, {"cycle": 0, "loss": 2.0}, {"cycle": 1, "loss": 1.0}])
    assert lines(folder.path / "metrics.jsonl") == [{"cycle": 0, "loss": 2.0}, {"cycle": 1, "loss": 1.0}]


def test_a_number_that_json_has_no_word_for_is_written_as_null(tmp_path: Path) -> None:
    folder = RunFolder.open(tmp_path, "demo", MINE)
    folder.write_metrics([{"cycle": 0, "loss": math.nan, "grad_norm": math.inf}])
    assert lines(folder.path / "metrics.jsonl") == [{"cycle": 0, "loss": None, "grad_norm": None}]


def test_states_form_a_chain_with_one_row_a_block(tmp_path: Path) -> None:
    folder = RunFolder.open(tmp_path, "demo", MINE)
    rows = [{"block": 0, "state_id": "st_a", "attempt": 1}, {"block": 0, "state_id": "st_b", "attempt": 2}]
    folder.write_states(rows)
    assert lines(folder.path / "states.jsonl") == rows[1:]


def test_samples_are_kept_by_cycle_and_by_evaluation(tmp_path: Path) -> None:
    folder = RunFolder.open(tmp_path, "demo", MINE)
    row = {"prompt": "7 + 5?", "completion": "12", "reward": 1.0, "stop_reason": "stop"}
    folder.write_samples(3, [row])
    folder.write_samples("evaluation-before", [row, row])
    assert lines(folder.path / "samples" / "cycle-0003.jsonl") == [row]
    assert lines(folder.path / "samples" / "evaluation-before.jsonl") == [row, row]


@pytest.mark.parametrize("tokens", [list(range(LONGEST_NUMBER_LIST + 1)), [0.5] * 1000])
def test_a_long_list_of_numbers_is_refused_by_name_and_nothing_is_written(tmp_path: Path, tokens: list[float]) -> None:
    folder = RunFolder.open(tmp_path, "demo", MINE)
    with pytest.raises(ValueError, match=r"cycle-0000\.jsonl: tokens: a list of \d+ numbers"):
        folder.write_samples(0, [{"completion": "12", "tokens": tokens}])
    assert not (folder.path / "samples").exists()


@contextmanager
def no_file_may_grow() -> Iterator[None]:
    """What a full disk is to a process."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_file_that_a_full_disk_refuses_is_named_and_the_old_one_stays_without_a_rest(tmp_path: Path) -> None:
    folder = RunFolder.open(tmp_path, "demo", MINE)
    folder.write_summary({"accuracy_after": 0.9})
    with no_file_may_grow(), pytest.raises(OSError, match=f"File too large: '{folder.path}/summary.json'"):
        folder.write_summary({"accuracy_after": 0.1})
    assert json.loads((folder.path / "summary.json").read_text()) == {"accuracy_after": 0.9}
    assert sorted(path.name for path in folder.path.iterdir()) == ["config.json", "summary.json"]


def test_outcomes_of_stages_that_are_no_records_count_as_none(tmp_path: Path) -> None:
    folder = RunFolder.open(tmp_path, "chain", MINE)
    for damaged in ("[1]\n", "3\n", '{"stage": "sft"}\n"rl"\n', "{\n"):
        (folder.path / "stages.jsonl").write_text(damaged)
        assert folder.read_stages() == []
