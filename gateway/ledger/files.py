"""Saved states and exported adapters in the ledger."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields

from gateway.ledger.database import Database
from gateway.ledger.records import FileRecord
from whitney.labels import FLOW_RUN, ROOT_FLOW_RUN

_COLUMNS = ", ".join(field.name for field in fields(FileRecord))
_PLACES = ", ".join("?" for _ in fields(FileRecord))


@dataclass(frozen=True, slots=True)
class Files:
    """The table `files`."""

    database: Database

    def add(self, record: FileRecord) -> None:
        """Record a file that is complete and on disk."""
        self.database.execute(f"INSERT INTO files ({_COLUMNS}) VALUES ({_PLACES})", *astuple(record))

    def get(self, kind: str, file_id: str) -> FileRecord | None:
        """One state or artifact, also one that has gone."""
        row = self.database.one(f"SELECT {_COLUMNS} FROM files WHERE kind = ? AND file_id = ?", kind, file_id)
        return None if row is None else FileRecord(**dict(row))

    def present(self) -> set[str]:
        """The ids of all files that should be on disk."""
        return {row["file_id"] for row in self.database.all("SELECT file_id FROM files WHERE gone_at IS NULL")}

    def state_before(self, run_id: str, seq_id: int) -> str | None:
        """The id of the state that a run had saved last before its operation `seq_id`."""
        row = self.database.one(
            "SELECT file_id FROM files WHERE run_id = ? AND kind = 'state' AND seq_id < ? ORDER BY seq_id DESC LIMIT 1",
            run_id,
            seq_id,
        )
        return None if row is None else str(row["file_id"])

    def unneeded(self, saved_before: float) -> list[FileRecord]:
        """Files that nobody could go on from who is still there, oldest first.

        Their session is closed; no run of an open session began from them; and no open session has their flow run's
        label, or its root's: its attempt, or a later stage of its pipeline, may still ask for them.
        """
        columns = ", ".join(f"files.{field.name}" for field in fields(FileRecord))
        rows = self.database.all(
            "WITH flows_at_work AS ("
            "  SELECT label.value FROM sessions, json_each(sessions.labels) AS label"
            "  WHERE status = 'open' AND label.key IN (?1, ?2)),"
            " starts_in_use AS ("
            "  SELECT coalesce(spec ->> '$.initial.state_id', spec ->> '$.initial.artifact_id') AS file_id"
            "  FROM runs JOIN sessions USING (session_id) WHERE sessions.status = 'open')"
            f" SELECT {columns} FROM files JOIN runs USING (run_id) JOIN sessions USING (session_id)"
            " WHERE files.gone_at IS NULL AND files.created_at < ?3 AND sessions.status = 'closed'"
            " AND NOT EXISTS (SELECT 1 FROM starts_in_use WHERE starts_in_use.file_id = files.file_id)"
            " AND NOT EXISTS (SELECT 1 FROM json_each(sessions.labels) AS label"
            "  WHERE label.key IN (?1, ?2) AND label.value IN flows_at_work)"
            " ORDER BY files.created_at",
            FLOW_RUN,
            ROOT_FLOW_RUN,
            saved_before,
        )
        return [FileRecord(**dict(row)) for row in rows]

    def mark_gone(self, file_ids: Iterable[str], now: float, by: str) -> None:
        """The bytes go, "request" or "retention" being why; what is gone already stays gone as it went."""
        with self.database.transaction():
            for file_id in file_ids:
                self.database.execute(
                    "UPDATE files SET gone_at = ?, gone_by = ? WHERE file_id = ? AND gone_at IS NULL", now, by, file_id
                )
