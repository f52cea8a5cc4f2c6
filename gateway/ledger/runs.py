"""Runs and their bills in the ledger."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from gateway.ledger.database import Database
from gateway.ledger.records import RunRecord
from whitney.types import CreateRun, RunUsage


@dataclass(frozen=True, slots=True)
class Runs:
    """The tables `runs` and `billing`."""

    database: Database

    def add(self, run_id: str, session_id: str, digest: str, spec: CreateRun, now: float) -> None:
        """Record a run whose weights have been allocated."""
        self.database.execute(
            "INSERT INTO runs (run_id, session_id, create_key, digest, spec, status, created_at)"
            " VALUES (?, ?, ?, ?, ?, 'active', ?)",
            run_id,
            session_id,
            spec.create_key,
            digest,
            spec.model_dump_json(),
            now,
        )

    def get(self, run_id: str) -> RunRecord | None:
        """One run by its id."""
        return _record(self.database.one("SELECT * FROM runs WHERE run_id = ?", run_id))

    def by_key(self, session_id: str, create_key: str) -> RunRecord | None:
        """One run by the key its creator chose within the session."""
        return _record(
            self.database.one("SELECT * FROM runs WHERE session_id = ? AND create_key = ?", session_id, create_key)
        )

    def of_session(self, session_id: str) -> list[RunRecord]:
        """A session's runs, oldest first."""
        rows = self.database.all("SELECT * FROM runs WHERE session_id = ? ORDER BY created_at, rowid", session_id)
        return [record for row in rows if (record := _record(row))]

    def set_status(self, run_id: str, status: str, reason: str | None = None) -> None:
        """Move a run along its life cycle; the first reason given is kept."""
        self.database.execute(
            "UPDATE runs SET status = ?, reason = coalesce(reason, ?) WHERE run_id = ?", status, reason, run_id
        )

    def fail_unfinished(self, reason: str) -> int:
        """Fail every run that is not terminal (their weights lived in a process that is gone); how many there were."""
        return self.database.execute(
            "UPDATE runs SET status = 'failed', reason = ? WHERE status NOT IN ('finished', 'cancelled', 'failed')",
            reason,
        )

    def usage(self, run_id: str) -> RunUsage:
        """What the run has been billed for."""
        rows = self.database.all("SELECT * FROM billing WHERE run_id = ? ORDER BY kind", run_id)
        return RunUsage(
            operations={row["kind"]: row["operations"] for row in rows},
            prefill_tokens=sum(row["prefill_tokens"] for row in rows),
            sampled_tokens=sum(row["sampled_tokens"] for row in rows),
            trained_tokens=sum(row["trained_tokens"] for row in rows),
        )


def _record(row: sqlite3.Row | None) -> RunRecord | None:
    if row is None:
        return None
    return RunRecord(**{**dict(row), "spec": CreateRun.model_validate_json(row["spec"])})
