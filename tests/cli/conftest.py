"""What tests of the command line share."""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from own_servers import CONFIG, command, summary_in, unconfigured


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
