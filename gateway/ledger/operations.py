"""Operations in the ledger: written before they execute, answered for ever after."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from gateway.ledger.database import Database, pack, unpack
from gateway.ledger.records import OperationRecord
from whitney.types import Usage, WireErrorDetail

_COLUMNS = (
    "run_id, seq_id, kind, sampler_id, digest, status, result, error, prefill_tokens, sampled_tokens, trained_tokens"
)


@dataclass(frozen=True, slots=True)
class Ended:
    """How an operation ended: `status`, and a result or an error. Cancelled operations are not billed."""

    seq_id: int
    kind: str
    status: str
    result: dict[str, Any] | None = None
    error: WireErrorDetail | None = None
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True)
class Operations:
    """The table `operations`."""

    database: Database

    def accept(
        self,
        run_id: str,
        seq_id: int,
        *,
        kind: str,
        sampler_id: str | None,
        digest: str,
        payload: dict[str, Any],
        next_seq_id: int,
    ) -> None:
        """Queue an operation and move the run's next expected seq_id."""
        with self.database.transaction():
            self.database.execute(
                "INSERT INTO operations (run_id, seq_id, kind, sampler_id, digest, payload, status)"
                " VALUES (?, ?, ?, ?, ?, ?, 'queued')",
                run_id,
                seq_id,
                kind,
                sampler_id,
                digest,
                pack(payload),
            )
            self.database.execute("UPDATE runs SET next_seq_id = ? WHERE run_id = ?", next_seq_id, run_id)

    def get(self, run_id: str, seq_id: int) -> OperationRecord | None:
        """One operation."""
        row = self.database.one(f"SELECT {_COLUMNS} FROM operations WHERE run_id = ? AND seq_id = ?", run_id, seq_id)
        return None if row is None else _record(row)

    def payload(self, run_id: str, seq_id: int) -> dict[str, Any]:
        """The payload of an operation that has not ended.

        Raises:
            LookupError: it has ended, or never was.
        """
        row = self.database.one("SELECT payload FROM operations WHERE run_id = ? AND seq_id = ?", run_id, seq_id)
        if row is None or row["payload"] is None:
            raise LookupError(f"operation {seq_id} of run {run_id} has no payload in the ledger")
        payload: dict[str, Any] = orjson.loads(unpack(row["payload"]))
        return payload

    def has_sampler(self, run_id: str, sampler_id: str) -> bool:
        """Whether this run has made that snapshot."""
        row = self.database.one(
            "SELECT 1 FROM operations WHERE run_id = ? AND sampler_id = ?"
            " AND kind = 'save_weights_for_sampler' AND status = 'succeeded'",
            run_id,
            sampler_id,
        )
        return row is not None

    def start(self, run_id: str, sampler_ids: dict[int, str | None]) -> None:
        """Queued → running, with the snapshot that each reads or makes: on record before anything is executed.

        The count is of no use here; it is for whoever has to show that nothing was ever executed twice.
        """
        with self.database.transaction():
            for seq_id, sampler_id in sampler_ids.items():
                self.database.execute(
                    "UPDATE operations SET status = 'running', executions = executions + 1, sampler_id = ?"
                    " WHERE run_id = ? AND seq_id = ?",
                    sampler_id,
                    run_id,
                    seq_id,
                )

    def end(self, run_id: str, endings: Sequence[Ended]) -> None:
        """Record results and bill them, all or none; what has ended already stays as it is."""
        with self.database.transaction():
            for ended in endings:
                changed = self.database.execute(
                    "UPDATE operations SET status = ?, payload = NULL, result = ?, error = ?,"
                    " prefill_tokens = ?, sampled_tokens = ?, trained_tokens = ?"
                    " WHERE run_id = ? AND seq_id = ? AND status IN ('queued', 'running')",
                    ended.status,
                    None if ended.result is None else pack(ended.result),
                    None if ended.error is None else ended.error.model_dump_json(),
                    ended.usage.prefill_tokens,
                    ended.usage.sampled_tokens,
                    ended.usage.trained_tokens,
                    run_id,
                    ended.seq_id,
                )
                if changed and ended.status != "cancelled":
                    self._bill(run_id, ended)

    def _bill(self, run_id: str, ended: Ended) -> None:
        self.database.execute(
            "INSERT INTO billing (run_id, kind, operations, prefill_tokens, sampled_tokens, trained_tokens)"
            " VALUES (?, ?, 1, ?, ?, ?) ON CONFLICT (run_id, kind) DO UPDATE SET"
            " operations = operations + 1, prefill_tokens = prefill_tokens + excluded.prefill_tokens,"
            " sampled_tokens = sampled_tokens + excluded.sampled_tokens,"
            " trained_tokens = trained_tokens + excluded.trained_tokens",
            run_id,
            ended.kind,
            ended.usage.prefill_tokens,
            ended.usage.sampled_tokens,
            ended.usage.trained_tokens,
        )

    def cancel_queued(self, run_id: str) -> list[int]:
        """Queued → cancelled, whether waiting for its turn or behind a gap; the seq_ids."""
        rows = self.database.all(
            "UPDATE operations SET status = 'cancelled', payload = NULL WHERE run_id = ? AND status = 'queued'"
            " RETURNING seq_id",
            run_id,
        )
        return [row["seq_id"] for row in rows]

    def end_all(self, run_id: str, error: WireErrorDetail) -> list[int]:
        """The run has ended, and so does all that is left of it: running → failed with `error`, queued → cancelled."""
        with self.database.transaction():
            rows = self.database.all(
                "UPDATE operations SET status = 'failed', payload = NULL, error = ? WHERE run_id = ?"
                " AND status = 'running' RETURNING seq_id",
                error.model_dump_json(),
                run_id,
            )
            return [row["seq_id"] for row in rows] + self.cancel_queued(run_id)

    def abandon_unfinished(self, error: WireErrorDetail) -> None:
        """After a restart: what was running failed with `error`, what was queued is cancelled."""
        with self.database.transaction():
            self.database.execute(
                "UPDATE operations SET status = 'failed', payload = NULL, error = ? WHERE status = 'running'",
                error.model_dump_json(),
            )
            self.database.execute("UPDATE operations SET status = 'cancelled', payload = NULL WHERE status = 'queued'")

    def runs_with_results_of_before(self, closed_before: float) -> list[str]:
        """Runs of sessions that were closed before that moment, of which results are still kept."""
        rows = self.database.all(
            "SELECT run_id FROM runs JOIN sessions USING (session_id) WHERE sessions.status = 'closed'"
            " AND coalesce(closed_at, heartbeat_at) < ? AND EXISTS (SELECT 1 FROM operations"
            "  WHERE operations.run_id = runs.run_id AND operations.result IS NOT NULL)",
            closed_before,
        )
        return [row["run_id"] for row in rows]

    def drop_results(self, run_id: str) -> int:
        """Forget what a run's operations answered, and nothing else; how many there were."""
        return self.database.execute(
            "UPDATE operations SET result = NULL WHERE run_id = ? AND result IS NOT NULL", run_id
        )


def _record(row: sqlite3.Row) -> OperationRecord:
    return OperationRecord(
        run_id=row["run_id"],
        seq_id=row["seq_id"],
        kind=row["kind"],
        sampler_id=row["sampler_id"],
        digest=row["digest"],
        status=row["status"],
        result=None if row["result"] is None else unpack(row["result"]),
        error=None if row["error"] is None else WireErrorDetail.model_validate_json(row["error"]),
        usage=Usage(
            prefill_tokens=row["prefill_tokens"],
            sampled_tokens=row["sampled_tokens"],
            trained_tokens=row["trained_tokens"],
        ),
    )
