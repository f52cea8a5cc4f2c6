"""`whitney run --resume`, after SIGKILL and with nothing configured: the run's own Prefect server and gateway again."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from own_servers import CONFIG, command, summary_in, unconfigured

from cli.app import run_command
from cli.run_data import Endpoints, leftovers

PATIENCE_S = 120.0

pytestmark = pytest.mark.usefixtures("loggers_as_they_were")


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a run was killed in its second cycle."""
    folder = tmp_path_factory.mktemp("killed")
    (folder / "tiny.toml").write_text(CONFIG)
    states = folder / "runs" / "r" / "states.jsonl"
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command("tiny.toml", "--name", "r"), cwd=folder, env=unconfigured(folder), stdout=log, stderr=log
        )
    deadline = time.monotonic() + PATIENCE_S
    while not states.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, (folder / "log").read_text()
    assert len(states.read_text().splitlines()) == 1
    (notice,) = folder.glob(".whitney/gateways/*/gateway.json")
    while notice.exists() and time.monotonic() < deadline:  # its gateway stops by itself, and tidies up
        time.sleep(0.05)
    return folder


@pytest.fixture
def there(killed: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In the directory of the killed run; its run folder."""
    monkeypatch.chdir(killed)
    return Path("runs/r")


# The tests above the one that goes on with the killed run look at it as it was left.


def test_what_a_killed_run_leaves_is_named_by_its_run_folder_and_names_it_and_no_key_is_in_either(there: Path) -> None:
    endpoints = Endpoints.read(there)
    assert endpoints is not None
    assert endpoints.prefect_home is not None
    assert endpoints.gateway_data_dir is not None
    found = leftovers()
    assert {str(left.path.resolve()) for left in found} == {endpoints.prefect_home, endpoints.gateway_data_dir}
    assert {left.run_folder for left in found} == {there.resolve()}
    key = (Path(endpoints.gateway_data_dir) / "api_key").read_text().strip()
    assert key not in (there / "endpoints.json").read_text()


def test_doctor_tells_what_a_killed_run_has_left_and_both_ways_to_be_rid_of_it(
    there: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_command(["doctor"])
    lines = [line for line in capsys.readouterr().out.splitlines() if "left by a run" in line]
    assert len(lines) == 2
    assert all(f"`whitney run --resume {there.resolve()}` goes on with it" in line for line in lines)
    assert all(f"rm -r .whitney/{kind}/" in line for kind, line in zip(("gateways", "prefect"), lines, strict=True))


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (["--set", "optimizer.learning_rate=0.1"], ["  optimizer.learning_rate: 0.0005 → 0.1\n", "--allow-drift"]),
        (["tiny.toml", "--set", "cycles=9", "--set", "batch_size=2"], ["  batch_size: 4 → 2\n", "  cycles: 3 → 9\n"]),
        (
            ["--set", "seed=7", "--allow-drift"],
            ["another seed: finished blocks are matched by what they began with:\n  seed: 0 → 7\n"],
        ),
        (["--set", "lora.rank=4", "--allow-drift"], ["  lora.rank: 16 → 4\n"]),
        (["--set", "model.name=smollm2-135m-instruct"], ["another model.name"]),
        (["--name", "other"], ["another name: the run is found by its name:\n  name: 'r' → 'other'\n"]),
        (["--set", "sede=7"], ["unknown field 'sede'"]),
        (["--no-embedded"], ["--no-embedded: the states of this run are in the folder of its own gateway"]),
    ],
)
def test_what_differs_from_the_run_is_refused_field_by_field_before_anything_is_started(
    asked: list[str], told: list[str], there: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(path for path in Path.cwd().rglob("*") if "__pycache__" not in path.parts)
    assert run_command(["run", "--resume", "r", *asked]) == 2
    captured = capsys.readouterr()
    assert [words for words in told if words not in captured.err] == []
    assert "Traceback" not in captured.err
    assert captured.out == ""
    assert sorted(path for path in Path.cwd().rglob("*") if "__pycache__" not in path.parts) == before
    assert there.is_dir()


def test_a_run_is_only_gone_on_with_from_where_it_began(
    killed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command(["run", "--resume", str(killed / "runs" / "r")]) == 2
    assert f"go to the directory where the run began: {killed}" in capsys.readouterr().err


@pytest.fixture(scope="module")
def resumed(killed: Path) -> str:
    """What the terminal said when the killed run was gone on with."""
    done = subprocess.run(
        command("--resume", "r"), cwd=killed, env=unconfigured(killed), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_killed_run_ends_with_the_very_adapter_of_one_that_was_not(
    resumed: str, killed: Path, undisturbed: dict[str, Any]
) -> None:
    summary = summary_in(killed)
    assert summary["adapter_sha256"] == undisturbed["adapter_sha256"]
    assert summary["operations"] == undisturbed["operations"]
    assert (summary["attempt"], summary["open_sessions"]) == (2, 0)


def test_going_on_adopts_what_was_finished_and_closes_what_was_left_open(resumed: str, killed: Path) -> None:
    rows = [json.loads(line) for line in (killed / "runs" / "r" / "states.jsonl").read_text().splitlines()]
    assert [(row["cycle"], row["attempt"]) for row in rows] == [(0, 1), (1, 2), (2, 2)]
    assert "left by an earlier attempt: run run_" in resumed
    assert "going on after cycle 1" in resumed
    assert "cycle 1/3" not in resumed


def test_once_it_has_succeeded_nothing_is_left_but_the_run_folder(resumed: str, there: Path) -> None:
    assert leftovers() == []
    assert [path for kind in ("gateways", "prefect") for path in Path(".whitney", kind).iterdir()] == []


def test_a_finished_run_says_so_shows_its_summary_and_starts_nothing(
    resumed: str, there: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["run", "--resume", "runs/r"]) == 0
    shown = capsys.readouterr().out
    assert "runs/r is finished: nothing to go on with, nothing was allocated" in shown
    assert "Adapter:   runs/r/adapter" in shown
    assert "Starting" not in shown
    assert run_command(["run", "--resume", "runs/r", "--set", "cycles=9", "--allow-drift"]) == 2
    assert "runs/r is finished: a changed cycles has no effect. To train on, start a new run" in capsys.readouterr().err
