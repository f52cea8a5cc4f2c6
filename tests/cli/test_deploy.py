"""`whitney deploy` on a real Prefect server: what it makes, what it leaves alone, what it refuses."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.objects import ConcurrencyLimitStrategy
from prefect.client.schemas.responses import DeploymentResponse
from prefect.client.schemas.schedules import CronSchedule
from prefect.exceptions import ObjectNotFound
from prefect.settings import PREFECT_API_URL, temporary_settings

from cli.app import run_command
from cli.deploy_changes import made
from deployments.changes import Change
from deployments.ground import make_work_pool
from deployments.names import WORK_POOL
from gateway.launch import GatewayProcess
from tasks.credentials import WhitneyCredentials

MINE = """
algorithm = "sft"
cycles = 1
batch_size = 4
[model]
name = "tiny"
[data]
source = "mine.jsonl"
[evaluation]
enabled = false
"""


@pytest.fixture
def api(prefect_server: str) -> Iterator[SyncPrefectClient]:
    with get_client(sync_client=True) as client:
        yield client


@pytest.fixture
def mine(endpoint: GatewayProcess) -> str:
    """A configuration of the user's with data beside it, in the folder they stand in; a name that no test has used."""
    Path("mine.toml").write_text(MINE)
    examples = [{"prompt": f"{number} + 1 =", "answer": str(number + 1)} for number in range(20)]
    Path("mine.jsonl").write_text("".join(json.dumps(example) + "\n" for example in examples))
    return f"mine-{uuid4().hex[:8]}"


def deploy(*arguments: str) -> int:
    return run_command(["deploy", *arguments])


def lines(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """What was said of each thing, by its name."""
    said = (line.partition(": ") for line in capsys.readouterr().out.splitlines())
    return {thing: outcome for thing, colon, outcome in said if colon}


def exported() -> str:
    """What Prefect's own command wants to know, where the environment does not say it."""
    url = PREFECT_API_URL.value()
    return "" if "PREFECT_API_URL" in os.environ else f"  export PREFECT_API_URL={url}\n"


def deployed(api: SyncPrefectClient, name: str) -> DeploymentResponse:
    return api.read_deployment_by_name(name)


def test_all_that_is_shipped_is_registered_and_a_second_time_nothing_changes(
    api: SyncPrefectClient, mine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert deploy() == 0
    first = lines(capsys)
    assert deploy() == 0
    again = {name: said for name, said in lines(capsys).items() if not name.startswith("automations")}
    assert again.keys() == {
        "work pool whitney",
        "session limit whitney-sessions",
        "block type Whitney Credentials",
        "deployment reap/reap",
        "deployment grpo/nightly",
        "deployment sft/weekly",
        "deployment pipeline/addition",
        "automation Whitney",  # the first colon is in its name
    }
    assert all("unchanged" in said for said in again.values()), again
    assert "0 2 * * * Europe/Berlin, inactive)" in first["deployment grpo/nightly"]
    assert {name: deployed(api, name).schedules[0].active for name in ("reap/reap", "grpo/nightly", "sft/weekly")} == {
        "reap/reap": True,
        "grpo/nightly": False,
        "sft/weekly": False,
    }
    nightly = deployed(api, "grpo/nightly")
    assert nightly.work_pool_name == "whitney"
    assert nightly.pull_steps == [{"prefect.deployments.steps.set_working_directory": {"directory": str(Path.cwd())}}]
    assert api.read_work_pool("whitney").type == "process"


def test_a_configuration_of_ones_own_becomes_a_deployment_with_an_inactive_schedule(
    api: SyncPrefectClient, mine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    schedule = ("--cron", "30 3 * * 1-5", "--timezone", "Europe/Berlin", "--overlap", "skip")
    assert deploy("mine.toml", "--name", mine, *schedule, "--set", "cycles=3") == 0
    assert lines(capsys)[f"deployment sft/{mine}"] == "created (30 3 * * 1-5 Europe/Berlin, inactive)"
    there = deployed(api, f"sft/{mine}")
    assert there.parameters == {
        "config": {
            "session_limit": "whitney-sessions",
            "cycles": 3,
            "batch_size": 4,
            "model": {"name": "tiny"},
            "data": {"source": "mine.jsonl"},
            "evaluation": {"enabled": False},
        }
    }
    assert there.schedules[0].schedule == CronSchedule(cron="30 3 * * 1-5", timezone="Europe/Berlin")
    assert there.concurrency_options is not None
    assert there.concurrency_options.collision_strategy == ConcurrencyLimitStrategy.CANCEL_NEW
    assert there.global_concurrency_limit is not None
    assert there.global_concurrency_limit.limit == 1


def test_what_was_switched_on_or_is_not_said_stays_and_activate_switches_on(
    api: SyncPrefectClient, mine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert deploy("mine.toml", "--name", mine, "--interval", "7200", "--overlap", "skip") == 0
    there = deployed(api, f"sft/{mine}")
    api.update_deployment_schedule(there.id, there.schedules[0].id, active=True)
    capsys.readouterr()
    assert deploy("mine.toml", "--name", mine, "--set", "cycles=2") == 0
    assert lines(capsys)[f"deployment sft/{mine}"] == "changed (parameters, every 7200 s, active)"
    there = deployed(api, f"sft/{mine}")
    assert there.parameters["config"]["cycles"] == 2
    assert there.concurrency_options is not None
    assert there.concurrency_options.collision_strategy == ConcurrencyLimitStrategy.CANCEL_NEW
    api.update_deployment_schedule(there.id, there.schedules[0].id, active=False)
    assert deploy("mine.toml", "--name", mine, "--set", "cycles=2", "--activate") == 0
    assert lines(capsys)[f"deployment sft/{mine}"] == "changed (schedules, every 7200 s, active)"
    assert deploy("mine.toml", "--name", mine, "--interval", "60") == 0
    told = capsys.readouterr().out
    assert "A run is due every 60 s, and waits while another is at work. Where one takes longer than that, " in told
    assert told.endswith(f"/deployments; or, in a terminal,\n{exported()}  prefect deployment run 'sft/{mine}'\n")
    assert deployed(api, f"sft/{mine}").schedules[0].active


def test_what_another_deploy_has_made_in_the_meantime_is_there_and_no_error(api: SyncPrefectClient, mine: str) -> None:
    make_work_pool(api)
    found: list[bool] = []

    def step() -> Change:
        if not found:
            found.append(False)  # as it was when this one looked
            api.create_work_pool(WorkPoolCreate(name=WORK_POOL, type="process"))
        return make_work_pool(api)

    assert made(step).verb == "unchanged"
    assert found


def test_a_dry_run_says_what_would_be_and_does_nothing(
    api: SyncPrefectClient, mine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert deploy("mine.toml", "--name", mine, "--dry-run", "--sessions", "7") == 0
    said = lines(capsys)
    assert said[f"deployment sft/{mine}"] == "would be created"
    assert said["session limit whitney-sessions"].startswith("would be ")
    with pytest.raises(ObjectNotFound):
        deployed(api, f"sft/{mine}")


def test_the_session_limit_keeps_its_number_until_another_is_asked_for(
    api: SyncPrefectClient, mine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def limit() -> int:
        return api.read_global_concurrency_limit_by_name("whitney-sessions").limit

    assert deploy("--sessions", "5") == 0
    capsys.readouterr()
    assert deploy() == 0
    assert lines(capsys)["session limit whitney-sessions"] == "unchanged (5 at once)"
    assert limit() == 5
    assert deploy("--sessions", "2") == 0
    assert lines(capsys)["session limit whitney-sessions"] == "changed (5 → 2 at once)"
    assert limit() == 2


def test_credentials_are_kept_on_the_server_and_the_key_is_never_told(
    api: SyncPrefectClient, mine: str, endpoint: GatewayProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("mine.toml", "--name", mine)
    assert deploy(*arguments, "--credentials", mine) == 0
    assert deploy(*arguments) == 0
    printed = capsys.readouterr()
    assert f"credentials {mine}: created ({endpoint.base_url})" in printed.out
    assert f"deployment sft/{mine}: unchanged" in printed.out, "they stay"
    block = WhitneyCredentials.load(mine, _sync=True)
    assert isinstance(block, WhitneyCredentials)
    key = endpoint.api_key
    assert (block.base_url, block.api_key.get_secret_value()) == (endpoint.base_url, key)
    assert deployed(api, f"sft/{mine}").parameters["config"]["credentials_block"] == mine
    assert key not in printed.out + printed.err
    assert key not in deployed(api, f"sft/{mine}").model_dump_json()
    assert deploy("--notify", f"whitney-credentials/{mine}") == 2
    assert "a block of this type sends no notifications" in capsys.readouterr().err
    assert deploy(*arguments, "--credentials", "none") == 0
    assert "credentials_block" not in deployed(api, f"sft/{mine}").parameters["config"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["mine.toml", "--cron", "0 2 * *"], "--cron '0 2 * *': Invalid cron string: \"0 2 * *\"; minute, hour"),
        (["mine.toml", "--cron", "0 2 * * *", "--timezone", "Mars/Base"], "--timezone 'Mars/Base': Invalid timezone"),
        (["mine.toml", "--timezone", "UTC"], "--timezone UTC: only with --cron"),
        (["mine.toml", "--interval", "0"], "--interval 0.0: Input should be greater than 0"),
        (["mine.toml", "--interval", "inf"], "--interval inf: Input should be less than or equal to 31622400"),
        (["mine.toml", "--interval", "60", "--cron", "0 2 * * *"], "--cron and --interval exclude one another"),
        (["mine.toml", "--overlap", "perhaps"], 'Invalid value "perhaps" for --overlap'),
        (["mine.toml", "--name", "a/b"], "--name 'a/b'"),
        (["mine.toml", "--name", "weekly"], "sft/weekly is one of this project's deployments"),
        (["mine.toml", "--set", "cycles=0"], "cycles = 0"),
        (["mine.toml", "--set", "data.source=nowhere.jsonl"], "nowhere.jsonl"),
        (["none.toml"], "none.toml: no such file"),
        (["--cron", "0 2 * * *"], "--cron: only with a configuration"),
        (["--sessions", "0"], "--sessions 0: at least 1"),
        (["--credentials", "My Key"], "--credentials 'My Key': lower-case"),
        (["--notify", "slack"], "--notify 'slack': write it as TYPE/NAME"),
        (["--notify", "slack-webhook/nobody"], "--notify slack-webhook/nobody: no such block"),
    ],
    ids=lambda value: "-".join(value).replace("/", "_") if isinstance(value, list) else "",
)
def test_bad_input_is_refused_by_name_and_value_and_nothing_is_registered(
    arguments: list[str], says: str, api: SyncPrefectClient, mine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {row.id: row.updated for row in api.read_deployments()}
    assert deploy(*arguments) == 2
    printed = capsys.readouterr()
    assert says in printed.err
    assert printed.out == ""
    assert {row.id: row.updated for row in api.read_deployments()} == before


def test_a_folder_whose_files_would_be_run_in_place_of_ours_is_refused(
    api: SyncPrefectClient, mine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("tasks.py").write_text("")
    assert deploy("mine.toml", "--name", mine) == 2
    said = f"runs cannot work in this folder: {Path.cwd() / 'tasks.py'} has the name of a package of this project"
    assert said in capsys.readouterr().err
    assert mine not in {row.name for row in api.read_deployments()}


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "no Prefect server: set PREFECT_API_URL"),
        ("http://127.0.0.1:9/api", "http://127.0.0.1:9/api does not answer"),
    ],
    ids=["none", "silent"],
)
def test_without_a_prefect_server_it_is_said_what_to_start(
    url: str, says: str, mine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with temporary_settings({PREFECT_API_URL: url or None}):
        assert deploy("mine.toml") == 2
    told = capsys.readouterr().err
    assert says in told
    assert "whitney up" in told
