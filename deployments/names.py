"""What this project's things are called on a Prefect server. Nothing is imported: `whitney --help` reads it, too."""

from __future__ import annotations

TAG = "whitney"
"""Of everything that is deployed; automations find runs by it."""

WORK_POOL = "whitney"
"""What workers poll."""

SESSION_LIMIT = "whitney-sessions"
"""Prefect global concurrency limit: sessions that are open at once, whoever runs."""

REAPER = "reap/reap"
"""The deployment that closes what others have left open."""

HEARTBEAT = {"PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30"}
"""Environment of a flow run: it is heard of every so many seconds, Prefect's least. One that is not any more is taken
for dead, by an automation of `whitney deploy`."""
