"""States and artifacts: they outlive run and session, and are kept until somebody deletes them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from gateway.errors import not_found
from gateway.ledger import FileRecord
from gateway.parts import Parts


class FileRules:
    """Saved states (`kind` "state") and exported adapters ("artifact")."""

    def __init__(self, parts: Parts) -> None:
        self._ledger = parts.ledger
        self._data = parts.data

    def get(self, kind: str, file_id: str) -> tuple[FileRecord, Path]:
        """The record, and where the bytes are; or 404."""
        record = self._ledger.files.get(kind, file_id)
        if record is None or not (path := self._data.file(kind, record.file_id)).exists():
            raise not_found(kind, file_id)
        return record, path

    def delete(self, kind: str, file_id: str) -> None:
        """Delete record and bytes, or 404. Runs that began from the file keep what they read."""
        _, path = self.get(kind, file_id)
        self._ledger.files.delete(file_id)
        with suppress(FileNotFoundError):
            path.unlink()
