"""What tests of the command line share."""

from __future__ import annotations

import json
import logging
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from own_servers import CONFIG, command, summary_in, unconfigured
from plan_files import FILES, rows_in_ledger

from cli.app import run_command
from cli.plan_schema import plan_schema
from gateway.launch import GatewayProcess


@pytest.fixture
def loggers_as_they_were(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Undoes what `whitney run`, called in this process, does to Prefect's logging."""
    monkeypatch.setenv("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "WARNING")  # the command would leave it behind
    loggers = [logging.getLogger(name) for name in ("prefect.flow_runs", "prefect.task_runs")]
    former = [logger.propagate for logger in loggers]
    yield
    for logger, propagate in zip(loggers, former, strict=True):
        logger.propagate = propagate


@pytest.fixture(scope="session")
def undisturbed(prefect_server: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The summary of a run, with a gateway of its own, in which nothing was killed."""
    folder = tmp_path_factory.mktemp("undisturbed")
    (folder / "tiny.toml").write_text(CONFIG)
    environment = unconfigured(folder) | {"PREFECT_API_URL": prefect_server}
    arguments = command("tiny.toml", "--name", "r")
    done = subprocess.run(arguments, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return summary_in(folder)


@pytest.fixture
def ledger_stays_as_it_was(endpoint: GatewayProcess) -> Iterator[None]:
    """With every file of `plan_files` in the folder."""
    for name, text in FILES.items():
        Path(f"{name}.toml").write_text(text)
    before = rows_in_ledger(endpoint)
    yield
    assert rows_in_ledger(endpoint) == before, "a plan allocates nothing"


@pytest.fixture
def planned(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """What `whitney plan --json` prints, by its published schema."""

    def planned(*arguments: str) -> Any:
        assert run_command(["plan", *arguments, "--json"]) == 0
        plan = json.loads(capsys.readouterr().out)
        Draft202012Validator(plan_schema()).validate(plan)
        return plan

    return planned
