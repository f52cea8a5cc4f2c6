"""`whitney run` where no PREFECT_API_URL is set: a Prefect server of its own, which ends with the command."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from prefect_tables import database_with_tables, with_tables

from cli.prefect_server import PrefectServerError, prefect_server, project_server_environment, wait_until_up
from gateway.launch import GatewayProcess
from tasks.python_process import command

CONFIG = """
algorithm = "grpo"
cycles = 1
groups_per_cycle = 1
group_size = 2
[model]
name = "tiny"
[sampling]
max_tokens = 4
[[rewards]]
function = "mine:reward"
[evaluation]
enabled = false
"""
# It and the project import the project's own modules, though files beside it have their names.
REWARD = "import models.resolve\n\ndef reward(completion):\n    return len(completion.text)\n"
# What Prefect writes when it sends logs and events to a server that is gone, or links to one.
LOST = ("Error logging to API", "connection attempts failed", "/runs/flow-run/")


@pytest.fixture
def shared_server(prefect_server: str) -> str:
    """The URL of the server that other tests use, too."""
    return prefect_server


@contextmanager
def started(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    (folder / "tiny.toml").write_text(CONFIG)
    (folder / "mine.py").write_text(REWARD)
    for name in ("tasks.py", "models.py", "gateway.py"):
        (folder / name).write_text("raise RuntimeError\n")
    variables = {name: value for name, value in os.environ.items() if name != "PREFECT_API_URL"}
    with subprocess.Popen(
        command("cli", "run", "tiny.toml", *arguments),  # like the script `whitney`, which has no folder to search
        cwd=folder,
        env=variables | database_with_tables(folder) | {"PREFECT_HOME": str(folder / "prefect")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.usefixtures("endpoint")
def test_a_command_leaves_nothing_unsent_when_its_own_prefect_server_ends(tmp_path: Path) -> None:
    with started(tmp_path, "--verbose") as process:
        shown, _ = process.communicate()
    assert process.returncode == 0
    assert "Adapter:   runs/" in shown
    assert "Starting a Prefect server" in shown
    assert [words for words in LOST if words in shown] == []


def test_an_interrupted_command_leaves_nothing_unsent_either(endpoint: GatewayProcess, tmp_path: Path) -> None:
    with started(tmp_path, "--verbose", "--set", "cycles=500") as process:
        assert process.stdout is not None
        before = list(iter_until(process.stdout, "Session "))
        process.send_signal(signal.SIGINT)
        shown = "".join([*before, *process.stdout])
        assert process.wait() == 130
    assert "whitney: interrupted" in shown
    assert [words for words in LOST if words in shown] == []


def test_a_server_whose_port_another_has_taken_is_not_mistaken_for_the_other(
    shared_server: str, tmp_path: Path
) -> None:
    port = urlsplit(shared_server).port
    assert port is not None
    environment = project_server_environment(with_tables(tmp_path / "second"), port)
    with (
        prefect_server(environment, tmp_path / "second.log") as second,
        pytest.raises(PrefectServerError, match=r"ended with status 1.*taken its port"),
    ):
        wait_until_up(second, environment, tmp_path / "second.log")


def iter_until(lines: Iterator[str], part: str) -> Iterator[str]:
    for line in lines:
        yield line
        if part in line:
            return
