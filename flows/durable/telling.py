"""Warnings of an attempt: into Prefect's log, and to whoever listens in this process."""

from __future__ import annotations

from prefect.logging import get_run_logger

from tasks.events import emit


def warn(message: str) -> None:
    """Say what somebody who pays for the run should know: something is done again, waited for, or not as it began."""
    get_run_logger().warning("%s", message)
    emit("warning", message=message)
