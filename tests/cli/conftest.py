"""What tests of the command line share."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture
def loggers_as_they_were(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Undoes what `whitney run`, called in this process, does to Prefect's logging."""
    monkeypatch.setenv("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "WARNING")  # the command would leave it behind
    loggers = [logging.getLogger(name) for name in ("prefect.flow_runs", "prefect.task_runs")]
    former = [logger.propagate for logger in loggers]
    yield
    for logger, propagate in zip(loggers, former, strict=True):
        logger.propagate = propagate
