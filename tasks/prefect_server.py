"""Settings for the Prefect servers that this project starts: `whitney up`, `demo`, `run`, tests, benchmarks.

On SQLite, Prefect's server writes every task run's event in a transaction of its own. A subflow that is created while
one of them commits is refused (its read snapshot is stale: 503), and the client tries again after about 2 s. Measured
with Prefect 3.9.1, eight subflows of five short tasks each: 7 of 7 later subflows waited ~2 s with the defaults, 1 of 7
with events read and written in batches. A server on PostgreSQL needs none of this.

Slots of a global concurrency limit are counted in the database, but the leases under which they are held are by default
in the server's memory: after a restart they are unknown (renewing: 410, releasing: nothing happens), and the slots are
taken for ever (measured, 3.9.1). Kept as files in PREFECT_HOME they survive it. This every Prefect server needs.
"""

from __future__ import annotations

SERVER_SETTINGS = {
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_READ_BATCH_SIZE": "100",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "100",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",
    "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
}
"""Environment of a server process, set before Prefect is imported in it."""

PAGE = 200
"""The most flow runs that a Prefect server answers with at once."""
