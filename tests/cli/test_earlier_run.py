"""What stands in the way of going on with a run: its folder, others that are at work, other servers."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
from earlier_folders import FLOW_RUN_ID, refused, run_folder

from cli.app import run_command
from cli.run_data import Endpoints, PrefectAt, run_data
from cli.training import name_is_taken
from gateway.launch import GatewayProcess
from tasks.run_folder import RunFolder

STATE = {"block": 0, "cycle": 0, "state_id": "st_nowhere"}


pytestmark = pytest.mark.usefixtures("loggers_as_they_were")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_run_that_is_not_there_is_told_with_the_places_it_was_looked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert "there is no run folder r, nor runs/r" in refused("r", capsys=capsys)
    assert "there is no run folder r, nor mine/r" in refused("r", "--set", "output_dir=mine", capsys=capsys)


@pytest.mark.parametrize(
    ("record", "told"),
    [
        ("{", "runs/r/config.json is not as a run leaves it: Invalid JSON"),
        ("", "runs/r/config.json is not as a run leaves it: Invalid JSON"),
        ("5", "runs/r/config.json is not as a run leaves it: Input should be"),
        (f'{{"flow_run_id": "{FLOW_RUN_ID}", "algorithm": "sft", "config": []}}', "config.json: config is no table"),
        (f'{{"flow_run_id": "{FLOW_RUN_ID}", "config": {{}}}}', "runs/r/config.json: algorithm is missing"),
        ('{"flow_run_id": "x"}', "this run never began; start it again"),
        ('{"flow_run_id": "x", "algorithm": "sft", "config": {}}', "flow_run_id is missing, or no id"),
        (f'{{"flow_run_id": "{FLOW_RUN_ID}", "algorithm": "sft", "config": {{"x": 1}}}}', "unknown field 'x'"),
    ],
)
def test_a_record_that_cannot_be_gone_on_from_is_told_by_what_it_lacks(
    record: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (run_folder() / "config.json").write_text(record)
    assert told in refused("r", capsys=capsys)


KNOWN_NOWHERE = {"prefect_api_url": 5, "prefect_home": 7, "whitney_base_url": 3, "gateway_data_dir": 9, "directory": 1}


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("states.jsonl", "{}\n", "line 1, is not as a run leaves it: cycle: Field required"),
        ("states.jsonl", "5\n", "line 1, is not as a run leaves it: Input should be"),
        (
            "states.jsonl",
            '{"cycle": 0, "state_id": "s"}\n{"cycle": 1}\n',
            "line 2, is not as a run leaves it: state_id",
        ),
        ("states.jsonl", '{"cycle": 0, "sta', "line 1, is not as a run leaves it: Invalid JSON"),
        (
            "summary.json",
            "{}",
            "is not as a run leaves it: KeyError 'run_folder'; restore it from a copy; or delete it",
        ),
        ("summary.json", "[]", "is not as a run leaves it: Input should be"),
        ("summary.json", "null", "is not as a run leaves it: Input should be"),
        ("summary.json", '{"run_folder": "runs/r"}', "is not as a run leaves it: KeyError 'open_sessions'"),
        ("summary.json", '{"operations": 5}', "is not as a run leaves it: AttributeError"),
        ("endpoints.json", "", "is not as a run leaves it: Invalid JSON"),
        ("endpoints.json", "{}", "is not as a run leaves it: prefect_api_url: Field required"),
        ("endpoints.json", json.dumps(KNOWN_NOWHERE), "is not as a run leaves it: prefect_api_url: Input should be"),
    ],
)
def test_a_damaged_file_is_told_by_its_name_with_what_is_wrong_and_the_way_out(
    name: str, text: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (run_folder() / name).write_text(text)
    said = refused("r", capsys=capsys)
    assert f"runs/r/{name}" in said
    assert told in said
    assert "restore it from a copy" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("name", ["states.jsonl", "summary.json", "endpoints.json", ".lock"])
def test_a_directory_in_the_place_of_a_file_is_told_by_its_name(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    folder = run_folder()
    (folder / name).unlink(missing_ok=True)
    (folder / name).mkdir()
    said = refused("r", capsys=capsys)
    assert f"runs/r/{name}" in said
    assert "is a directory" in said.lower()


def test_a_renamed_folder_is_refused_with_the_name_it_had(capsys: pytest.CaptureFixture[str]) -> None:
    run_folder().rename("runs/q")
    assert "runs/q was renamed: the run would begin another folder. Rename it back: mv runs/q runs/r\n" in refused(
        "q", capsys=capsys
    )
    Path("runs/r").mkdir()  # another run has taken the name since
    assert f"mv runs/q runs/r-{FLOW_RUN_ID[:8]}\n" in refused("q", capsys=capsys)


def test_a_copied_folder_is_refused_with_the_one_in_which_the_run_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(run_folder(), "runs/q")
    assert "runs/q is a copy: this run goes on in runs/r. Resume that\n" in refused("q", capsys=capsys)


def test_a_run_that_another_process_trains_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    folder = run_folder()
    with RunFolder(folder, FLOW_RUN_ID).lock():
        assert "runs/r is being trained by another process" in refused("r", capsys=capsys)


@pytest.mark.parametrize(
    ("own", "what"), [("prefect_home", "record of finished blocks"), ("gateway_data_dir", "saved states")]
)
def test_a_run_whose_own_data_has_been_deleted_says_which(
    own: str, what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run_folder()
    endpoints = json.loads((folder / "endpoints.json").read_text())
    (folder / "endpoints.json").write_text(json.dumps({**endpoints, own: str(tmp_path / "gone")}))
    assert f"its {what}, {tmp_path / 'gone'}, is gone; start a new run" in refused("r", capsys=capsys)


@pytest.mark.parametrize(
    ("trained", "asked", "told"),
    [
        (2, "cycles=1", "cycles = 1: 2 have been trained already"),
        (3, "cycles=6", "cycles: training is over in runs/r"),
        (3, "stop.max_kl=2", "stop.max_kl: training is over in runs/r"),
    ],
)
def test_what_has_been_trained_cannot_become_less_and_what_is_over_not_more(
    trained: int, asked: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run_folder(states=tuple({**STATE, "block": cycle, "cycle": cycle} for cycle in range(trained)))
    assert told in refused("r", "--set", asked, "--allow-drift", capsys=capsys)


def test_a_prefect_server_that_does_not_know_the_run_is_refused_with_the_one_to_name(
    endpoint: GatewayProcess, prefect_server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run_folder(prefect_api_url="http://127.0.0.1:4200/api", whitney_base_url=endpoint.base_url)
    told = refused("r", capsys=capsys)
    assert f"the Prefect server at {prefect_server} does not know flow run {FLOW_RUN_ID}" in told
    assert "the run began with, http://127.0.0.1:4200/api, by PREFECT_API_URL" in told


@pytest.mark.usefixtures("endpoint")
def test_a_prefect_that_does_not_answer_is_named_and_the_run_can_be_gone_on_with_once_it_does(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings

    run_folder()
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api", PREFECT_CLIENT_MAX_RETRIES: 0}):
        assert run_command(["run", "--resume", "r"]) == 1
    told = capsys.readouterr().err
    assert "the run failed: Prefect at http://127.0.0.1:9/api does not answer (" in told
    assert "to go on: mend what the message names, then `whitney run --resume runs/r`; what is finished stays" in told


@pytest.mark.usefixtures("prefect_server")
def test_without_an_endpoint_the_one_that_the_run_began_at_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WHITNEY_DATA_DIR", str(tmp_path / "no-gateway"))
    for name in ("WHITNEY_BASE_URL", "WHITNEY_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    run_folder(whitney_base_url="http://127.0.0.1:9")
    told = refused("r", capsys=capsys)
    assert "no Whitney endpoint: set WHITNEY_BASE_URL" in told
    assert "This run began at http://127.0.0.1:9\n" in told


def test_a_name_that_an_unfinished_run_has_taken_is_told_with_the_way_to_go_on_with_it() -> None:
    folder = run_folder()
    assert name_is_taken(folder).endswith(
        "the run in it is not finished: `whitney run --resume runs/r` goes on with it"
    )
    with RunFolder(folder, FLOW_RUN_ID).lock():
        assert "--resume" not in name_is_taken(folder), "it is at work"
    (folder / "summary.json").write_text("{}")
    assert name_is_taken(folder) == "runs/r is there already: this run's folder has an ending to its name"


@pytest.mark.usefixtures("endpoint", "prefect_server")
def test_an_endpoint_that_has_not_got_the_runs_state_is_refused_with_the_one_to_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run_folder(states=(STATE,), whitney_base_url="http://127.0.0.1:9")
    told = refused("r", capsys=capsys)
    assert "has no state st_nowhere, which cycle 1 of this run ended in" in told
    assert "trained at, http://127.0.0.1:9, by WHITNEY_BASE_URL" in told


def test_a_run_that_was_begun_elsewhere_wants_to_know_the_prefect_server(capsys: pytest.CaptureFixture[str]) -> None:
    from prefect.settings import PREFECT_API_URL, temporary_settings

    (run_folder() / "endpoints.json").unlink()
    with temporary_settings(restore_defaults={PREFECT_API_URL}):
        assert "name the Prefect server that knows its flow run, by PREFECT_API_URL" in refused("r", capsys=capsys)


def test_resuming_needs_no_configuration_and_drifting_needs_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["run", "x.toml", "--allow-drift"]) == 2
    assert "--allow-drift: only with --resume RUN" in capsys.readouterr().err


def interrupted(folder: Path | None) -> Path:
    """The home of a Prefect server whose command was interrupted, where `folder` had been made by then or not."""
    with suppress(KeyboardInterrupt), run_data("prefect") as home:
        if folder is not None:
            Endpoints.of(PrefectAt("http://someone:secret@h:4200/api", home), None).record(folder)
        raise KeyboardInterrupt
    return home


def test_data_of_an_interrupted_run_is_kept_where_there_is_a_run_to_go_on_with(tmp_path: Path) -> None:
    assert not interrupted(None).exists()
    home = interrupted(tmp_path)
    assert (home / "run_folder.txt").read_text().strip() == str(tmp_path.resolve())


@pytest.mark.parametrize("reached", ["budget.max_operations", None])
def test_data_of_a_run_that_has_ended_is_kept_where_its_budget_has_stopped_it(
    reached: str | None, tmp_path: Path
) -> None:
    with run_data("prefect") as home:
        Endpoints.of(PrefectAt("http://h:4200/api", home), None).record(tmp_path)
        (tmp_path / "summary.json").write_text(json.dumps({"budget": {"reached": reached}}))
    assert home.exists() == (reached is not None)


def test_a_password_in_an_address_is_not_recorded(tmp_path: Path) -> None:
    interrupted(tmp_path)
    assert json.loads((tmp_path / "endpoints.json").read_text())["prefect_api_url"] == "http://h:4200/api"
