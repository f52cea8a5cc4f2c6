"""States and artifacts: they outlive run and session, and are kept until somebody deletes them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

from gateway.errors import conflict, not_found
from gateway.ledger import FileRecord
from gateway.parts import Parts
from gateway.storage import measure


class FileRules:
    """Saved states (`kind` "state") and exported adapters ("artifact")."""

    def __init__(self, parts: Parts) -> None:
        self._ledger = parts.ledger
        self._data = parts.data
        self._clock = parts.clock

    def get(self, kind: str, file_id: str) -> tuple[FileRecord, Path]:
        """The record, and where the bytes are; or 404."""
        record = self._ledger.files.get(kind, file_id)
        if record is None or not (path := self._data.file(kind, record.file_id)).exists():
            raise not_found(kind, file_id)
        return record, path

    async def verify(self, kind: str, file_id: str) -> None:
        """Read the file once, and compare its bytes with those that were recorded: training would go on from them.

        Raises:
            GatewayError: 409 `state_corrupt` or `artifact_corrupt`, for good.
        """
        record, path = self.get(kind, file_id)
        size, sha256 = await asyncio.to_thread(measure, path)
        if sha256 != record.sha256:
            raise conflict(
                f"{kind}_corrupt",
                f"{kind} {file_id}: {path.name} ({size} bytes) is not the file that was saved "
                f"({record.size_bytes} bytes; the SHA-256 differs): start from another, or restore it from a copy",
            )

    def delete(self, kind: str, file_id: str) -> None:
        """Delete record and bytes, or 404. Runs that began from the file keep what they read."""
        _, path = self.get(kind, file_id)
        self._ledger.files.mark_gone([file_id], self._clock(), "request")
        with suppress(FileNotFoundError):
            path.unlink()
