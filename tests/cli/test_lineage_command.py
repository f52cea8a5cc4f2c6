from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.app import run_command
from cli.columns import columns
from gateway.launch import GatewayProcess

OWNER = "11111111-2222-4333-8444-555555555555"


def run_folder(folder: Path, *, cycles: int = 2, block: str | None = None) -> Path:
    """The folder of a run that has not ended, one cycle a block."""
    folder.mkdir(parents=True)
    config = {"algorithm": "grpo", "flow_run_id": OWNER, "config": {"credentials_block": block}}
    (folder / "config.json").write_text(json.dumps(config))
    states: list[dict[str, Any]] = [
        {
            "block": cycle,
            "cycle": cycle,
            "state_id": f"st_{cycle}",
            "parent_state_id": f"st_{cycle - 1}" if cycle else None,
            "run_id": "run_1",
            "attempt": 1,
        }
        for cycle in range(cycles)
    ]
    metrics = [{"cycle": cycle, "operations/sample": 4, "tokens/sampled": 1000} for cycle in range(cycles)]
    for name, rows in (("states", states), ("metrics", metrics)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No endpoint in the environment, and none running on this machine."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WHITNEY_DATA_DIR", str(tmp_path / "no-gateway"))
    for name in ("WHITNEY_BASE_URL", "WHITNEY_API_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("nowhere")
def test_without_an_endpoint_the_chain_is_shown_and_the_bill_is_not_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_folder(tmp_path / "runs" / "short")
    assert run_command(["lineage", "short"]) == 0
    table = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert table[2] == ["1", "st_0", "the", "beginning", "run_1", "1", "4", "1,000"]
    assert table[3] == ["2", "st_1", "st_0", "run_1", "1", "4", "1,000"]
    assert "unbroken: each of 2 cycles is in the chain once" in " ".join(table[4])
    assert "what was billed is not known: no Whitney endpoint" in " ".join(table[-1])


def with_endpoints(folder: Path, **known: str | None) -> None:
    nothing = {"prefect_api_url": None, "prefect_home": None, "whitney_base_url": None, "gateway_data_dir": None}
    (folder / "endpoints.json").write_text(json.dumps({**nothing, "directory": str(folder), **known}))


@pytest.mark.usefixtures("nowhere")
def test_where_the_bill_is_not_known_what_was_done_again_is_told_as_the_summary_has_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run_folder(tmp_path / "runs" / "ended")
    again = {"operations": 1234, "tokens": 56789, "by_kind": {"sample": 1234}, "by_attempt": {}}
    (folder / "summary.json").write_text(json.dumps({"beside_blocks": [], "redone": again}))
    with_endpoints(folder, whitney_base_url="http://127.0.0.1:9")
    assert run_command(["lineage", "ended"]) == 0
    told = capsys.readouterr().out
    assert "redone:   1,234 operations, 56,789 tokens (as summary.json has it)\n" in told
    assert told.endswith("; the run was trained at http://127.0.0.1:9\n")
    assert run_command(["lineage", "ended", "--json"]) == 0
    table = json.loads(capsys.readouterr().out)
    assert (table["redone"], table["billed"]) == (again, None)


def test_the_bill_of_a_run_with_a_gateway_of_its_own_is_asked_nowhere_else(
    endpoint: GatewayProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run_folder(tmp_path / "own")
    with_endpoints(folder, gateway_data_dir=str(tmp_path / "gone"))
    assert run_command(["lineage", str(folder)]) == 0
    gone = "what was billed is not known: the run's own gateway has ended"
    assert f"{gone}; known again while `whitney run --resume {folder}` runs it\n" in capsys.readouterr().out
    (folder / "summary.json").write_text(json.dumps({"beside_blocks": [], "redone": None}))
    assert run_command(["lineage", str(folder)]) == 0
    assert capsys.readouterr().out.endswith(f"{gone}\n")
    with_endpoints(folder, gateway_data_dir=str(endpoint.data_dir))
    assert run_command(["lineage", str(folder)]) == 0
    assert f"{endpoint.base_url} has no session of it" in capsys.readouterr().out, "while it runs, it is asked"


@pytest.mark.usefixtures("nowhere")
def test_a_broken_chain_is_said_and_is_status_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = run_folder(tmp_path / "broken", cycles=3)
    rows = (folder / "states.jsonl").read_text().splitlines()
    (folder / "states.jsonl").write_text("\n".join([rows[0], rows[2]]) + "\n")
    assert run_command(["lineage", str(folder)]) == 1
    told = capsys.readouterr().out
    assert "BROKEN: block 1 is missing: block 2 is in its place" in told
    assert "unbroken" not in told
    assert run_command(["lineage", str(folder), "--json"]) == 1
    table = json.loads(capsys.readouterr().out)
    assert (table["unbroken"], table["redone"], table["billed"]) == (False, None, None)


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("config.json", "{", "config.json is not as a run leaves it"),
        ("config.json", '{"flow_run_id": "x"}', "is not as a run leaves it: KeyError 'algorithm'"),
        ("states.jsonl", '{"block": 0}\n', "is not as a run leaves it: KeyError 'cycle'"),
        ("summary.json", '{"redone": {"tokens": 1}}', "is not as a run leaves it: KeyError 'operations'"),
        ("endpoints.json", '{"directory": 5}', "odd/endpoints.json is not as a run leaves it: prefect_api_url"),
        ("metrics.jsonl", "no json\n", "metrics.jsonl, line 1, is not as a run leaves it: Invalid JSON"),
    ],
)
def test_a_folder_that_no_run_has_left_is_a_mistake(
    name: str, text: str, complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run_folder(tmp_path / "odd") / name).write_text(text)
    assert run_command(["lineage", "odd"]) == 2
    assert complaint in capsys.readouterr().err


def test_an_endpoint_that_never_saw_the_run_is_not_taken_for_its_bill(
    endpoint: GatewayProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_folder(tmp_path / "elsewhere")
    assert run_command(["lineage", "elsewhere"]) == 0
    assert f"what was billed is not known: {endpoint.base_url} has no session of it" in capsys.readouterr().out


def test_what_is_neither_a_run_nor_a_state_is_a_mistake(
    endpoint: GatewayProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("st_nobody", "../../etc", ""):
        assert run_command(["lineage", name]) == 2
        assert f"{endpoint.base_url} has no state of that id" in capsys.readouterr().err


def test_columns_align_numbers_to_the_right_and_show_what_is_not_there() -> None:
    assert columns(("ID", "COUNT", "OF"), [("a", 1234, None), ("bcd", 5, "x")]) == [
        "ID   COUNT  OF",
        "a    1,234  –",
        "bcd      5  x",
    ]
