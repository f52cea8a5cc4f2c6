"""Sessions in the ledger."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from gateway.ledger.database import Database
from gateway.ledger.records import SessionRecord


@dataclass(frozen=True, slots=True)
class Sessions:
    """The table `sessions`."""

    database: Database

    def add(self, session_id: str, create_key: str, digest: str, labels: Mapping[str, str], now: float) -> None:
        """Record a new open session."""
        self.database.execute(
            "INSERT INTO sessions (session_id, create_key, digest, labels, status, created_at, heartbeat_at)"
            " VALUES (?, ?, ?, ?, 'open', ?, ?)",
            session_id,
            create_key,
            digest,
            orjson.dumps(dict(labels)).decode(),
            now,
            now,
        )

    def get(self, session_id: str) -> SessionRecord | None:
        """One session by its id."""
        return _record(self.database.one("SELECT * FROM sessions WHERE session_id = ?", session_id))

    def by_key(self, create_key: str) -> SessionRecord | None:
        """One session by the key its creator chose."""
        return _record(self.database.one("SELECT * FROM sessions WHERE create_key = ?", create_key))

    def find(self, labels: Mapping[str, str], status: str | None = None) -> list[SessionRecord]:
        """Sessions that carry every one of `labels`, oldest first."""
        rows = self.database.all(
            "SELECT * FROM sessions WHERE (?1 IS NULL OR status = ?1) AND NOT EXISTS ("
            "  SELECT 1 FROM json_each(?2) AS wanted WHERE NOT EXISTS ("
            "    SELECT 1 FROM json_each(sessions.labels) AS label"
            "    WHERE label.key = wanted.key AND label.value = wanted.value))"
            " ORDER BY created_at, session_id",
            status,
            orjson.dumps(dict(labels)).decode(),
        )
        return [record for row in rows if (record := _record(row))]

    def beat(self, session_id: str, now: float) -> None:
        """Its owner has been heard from."""
        self.database.execute("UPDATE sessions SET heartbeat_at = ? WHERE session_id = ?", now, session_id)

    def close(self, session_id: str, reason: str | None, now: float) -> None:
        """Open → closed; a session that is closed keeps the reason it was closed for."""
        self.database.execute(
            "UPDATE sessions SET status = 'closed', reason = ?, closed_at = ? WHERE session_id = ? AND status = 'open'",
            reason,
            now,
            session_id,
        )


def _record(row: sqlite3.Row | None) -> SessionRecord | None:
    if row is None:
        return None
    return SessionRecord(**{**dict(row), "labels": orjson.loads(row["labels"])})
