"""`whitney up` as its user has it: real server, gateway and worker, and nothing of them left at the end."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from upped import Upped, no_process_is_left, statuses_in_the_ledger, whitney_up, write_training

from cli.app import run_command
from deployments.names import WORK_POOL


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Upped]:
    with whitney_up(tmp_path_factory.mktemp("up")) as up:
        yield up


@pytest.fixture(scope="module")
def long(up: Upped) -> str:
    """A deployment that trains for minutes; `whitney deploy` has found the server by itself."""
    write_training(up.folder, "long", cycles=2000)
    deployed = up.whitney("deploy", "long.toml", "--overlap", "wait")
    assert deployed.returncode == 0, deployed.stdout + deployed.stderr
    return "sft/long"


def test_a_second_one_in_the_same_folder_names_the_first(
    up: Upped, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(up.folder)
    assert run_command(["up"]) == 2
    notice = up.notice()
    assert f"process {up.process.pid}, Prefect at {notice['prefect_api_url']}" in capsys.readouterr().err
    assert notice.keys() == {"pid", "prefect_api_url", "prefect_home"}


def test_doctor_and_reap_find_what_it_runs(up: Upped, long: str) -> None:
    seen = up.whitney("doctor")
    assert seen.returncode == 0, seen.stdout
    assert f"ok   whitney up: at work in this folder, process {up.process.pid}" in seen.stdout
    assert f"ok   work pool: {WORK_POOL}, type process" in seen.stdout
    assert "online" in seen.stdout
    assert "ok   session limit: whitney-sessions: 2 at once, 0 taken" in seen.stdout
    assert up.whitney("reap").stdout == "No open session of a flow run.\n"


def test_a_schedule_trains_and_where_overlap_is_skip_a_run_that_is_due_meanwhile_is_cancelled(up: Upped) -> None:
    write_training(up.folder, "often", cycles=3)
    deployed = up.whitney("deploy", "often.toml", "--interval", "10", "--overlap", "skip", "--activate")
    assert deployed.returncode == 0, deployed.stdout + deployed.stderr

    def fired() -> dict[str, Any] | None:
        return next((run for run in up.runs("sft/often") if run["state"]["type"] in {"PENDING", "RUNNING"}), None)

    first = up.until(fired, "the schedule to fire")
    assert first["auto_scheduled"]
    up.switch_off_schedules("sft/often")
    assert up.ended(up.press_run("sft/often"))["type"] == "CANCELLED"
    assert up.ended(first["id"])["type"] == "COMPLETED"
    (folder,) = (up.folder / "runs").glob("*/adapter/adapter_model.safetensors")
    assert folder.is_file()


def test_a_run_whose_folder_is_not_on_this_machine_says_so_and_what_to_do(up: Upped, long: str) -> None:
    api = up.notice()["prefect_api_url"]
    found = httpx.get(f"{api}/deployments/name/{long}").raise_for_status().json()
    step = {"prefect.deployments.steps.set_working_directory": {"directory": "/nowhere/project"}}
    elsewhere = {"name": "elsewhere", "pull_steps": [step]} | {
        field: found[field] for field in ("flow_id", "entrypoint", "parameters", "work_pool_name")
    }
    httpx.post(f"{api}/deployments/", json=elsewhere).raise_for_status()
    state = up.ended(up.press_run("sft/elsewhere"))
    assert state["type"] == "CRASHED"
    assert "deployment 'elsewhere' works in /nowhere/project, and this machine has no such folder" in state["message"]
    assert "`whitney deploy`" in state["message"]


def test_where_overlap_is_wait_a_run_begins_when_the_one_before_has_died_whose_hook_has_closed_its_session(
    up: Upped, long: str
) -> None:
    first = up.press_run(long)
    up.at_work(first)
    second = up.press_run(long)
    up.until(lambda: up.state(second)["name"] == "AwaitingConcurrencySlot" or None, "the second run to wait")
    (process,) = up.flow_processes()
    process.kill()
    assert up.ended(first)["type"] == "CRASHED"
    up.until(lambda: not up.sessions(first) or None, "the hook to close the session; its flow is named by module")
    up.at_work(second)


def test_ctrl_c_has_the_run_close_its_session_and_leaves_no_process(up: Upped, long: str) -> None:
    at_work = [run["id"] for run in up.runs(long) if run["state"]["type"] == "RUNNING"]
    up.at_work(at_work[0] if at_work else up.press_run(long))
    assert up.flow_processes()
    up.process.send_signal(signal.SIGINT)
    assert up.process.wait(90) == 0, up.said()
    no_process_is_left(up)
    assert set(statuses_in_the_ledger(up.folder)) == {"closed"}
    assert up.said().endswith("Stopped.\n")
    assert not (up.folder / ".whitney" / "up.json").exists()
    assert up.whitney("deploy").returncode == 2
