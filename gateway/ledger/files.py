"""Saved states and exported adapters in the ledger."""

from __future__ import annotations

from dataclasses import astuple, dataclass

from gateway.ledger.database import Database
from gateway.ledger.records import FileRecord


@dataclass(frozen=True, slots=True)
class Files:
    """The table `files`."""

    database: Database

    def add(self, record: FileRecord) -> None:
        """Record a file that is complete and on disk."""
        self.database.execute("INSERT INTO files VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", *astuple(record))

    def get(self, kind: str, file_id: str) -> FileRecord | None:
        """One state or artifact."""
        row = self.database.one("SELECT * FROM files WHERE kind = ? AND file_id = ?", kind, file_id)
        return None if row is None else FileRecord(**dict(row))

    def ids(self) -> set[str]:
        """Every file that has been promised to somebody."""
        return {row["file_id"] for row in self.database.all("SELECT file_id FROM files")}

    def delete(self, file_id: str) -> None:
        """Forget a file."""
        self.database.execute("DELETE FROM files WHERE file_id = ?", file_id)
