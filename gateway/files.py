"""States and artifacts: they outlive run and session, and are kept until somebody or the retention deletes them."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gateway.errors import GatewayError, conflict, not_found
from gateway.ledger import FileRecord, RunRecord, iso
from gateway.parts import Parts
from gateway.storage import measure
from whitney.types import Initial, State

_WENT_BY = {
    "request": "was deleted on request",
    "retention": "was older than this server keeps what nobody uses (--keep-days), and was deleted",
}


class FileRules:
    """Saved states (`kind` "state") and exported adapters ("artifact")."""

    def __init__(self, parts: Parts) -> None:
        self._ledger = parts.ledger
        self._data = parts.data
        self._clock = parts.clock
        self.in_use: Counter[str] = Counter()
        """Files that runs are being created from just now: a sweep passes them over."""

    @contextmanager
    def using(self, file_id: str) -> Iterator[None]:
        """Keep a file from being swept meanwhile."""
        self.in_use[file_id] += 1
        try:
            yield
        finally:
            self.in_use[file_id] -= 1
            self.in_use += Counter()  # drops what has come down to zero

    def get(self, kind: str, file_id: str) -> tuple[FileRecord, Path]:
        """The record, and where the bytes should be.

        Raises:
            GatewayError: 404 when there never was one; 410 `state_expired` or `artifact_expired` when it has gone.
        """
        record = self._recorded(kind, file_id)
        if record.gone_at is not None:
            raise _gone(record, record.gone_at)
        return record, self._data.file(kind, record.file_id)

    def download(self, file_id: str) -> tuple[FileRecord, Path]:
        """An artifact whose bytes are all there; 404, 410 or 409 `artifact_corrupt` otherwise."""
        record, path = self.get("artifact", file_id)
        if (size := _size(path)) != record.size_bytes:
            raise self._corrupt(record, path, size)
        return record, path

    async def verify(self, kind: str, file_id: str) -> None:
        """Read the file once, and compare its bytes with those that were recorded: training would go on from them.

        Raises:
            GatewayError: 409 `state_corrupt` or `artifact_corrupt`, for good; 404 and 410 as `get`.
        """
        record, path = self.get(kind, file_id)
        if not await self._is_whole(record):
            raise self._corrupt(record, path, _size(path))

    def delete(self, kind: str, file_id: str) -> None:
        """Delete the bytes and remember that; again is once, 404 what never was. Runs keep what they began from."""
        record = self._recorded(kind, file_id)
        self.remove([record], "request")

    def remove(self, records: list[FileRecord], by: str) -> None:
        """Delete bytes, "request" or "retention" being why. Recorded first: what is left of a kill is swept later."""
        file_ids = [record.file_id for record in records]
        try:
            self._ledger.files.mark_gone(file_ids, self._clock(), by)
        except sqlite3.OperationalError:
            # On a full disk the bytes go first: without their room the ledger cannot be written.
            self._unlink(records)
            self._ledger.files.mark_gone(file_ids, self._clock(), by)
        else:
            self._unlink(records)

    def _unlink(self, records: list[FileRecord]) -> None:
        for record in records:
            self._data.file(record.kind, record.file_id).unlink(missing_ok=True)

    async def state(self, state_id: str) -> State:
        """What is known of a state: its file, what it came from, and for whom it was saved.

        Raises:
            GatewayError: as `get`; that of a state that has gone holds its `lineage`: a chain can be read across it.
        """
        record = self._recorded("state", state_id)
        run = self._ledger.runs.get(record.run_id)
        session = None if run is None else self._ledger.sessions.get(run.session_id)
        parent = self._parent(record, run)
        state = State(
            state_id=record.file_id,
            run_id=record.run_id,
            model=record.model,
            size_bytes=record.size_bytes,
            sha256=record.sha256,
            created_at=iso(record.created_at),
            complete=await self._is_whole(record),
            parent_state_id=parent.state_id if parent else None,
            parent_artifact_id=parent.artifact_id if parent else None,
            session_id=session.session_id if session else None,
            seq_id=record.seq_id,
            labels=session.labels if session else {},
        )
        if record.gone_at is not None:
            raise _gone(record, record.gone_at, lineage=state.model_dump())
        return state

    async def _is_whole(self, record: FileRecord) -> bool:
        """Whether the bytes on disk are those that were recorded; they are read only where their number is right."""
        path = self._data.file(record.kind, record.file_id)
        if _size(path) != record.size_bytes:
            return False
        try:
            return (await asyncio.to_thread(measure, path))[1] == record.sha256
        except FileNotFoundError:
            return False

    def _parent(self, record: FileRecord, run: RunRecord | None) -> Initial | None:
        """The state that the same run saved before, else what the run began from.

        Read from the records of files that exist or did: a parent's deletion changes no link.
        """
        if record.seq_id is not None and (before := self._ledger.files.state_before(record.run_id, record.seq_id)):
            return Initial(state_id=before)
        return run.spec.initial if run is not None else None

    def _recorded(self, kind: str, file_id: str) -> FileRecord:
        record = self._ledger.files.get(kind, file_id)
        if record is None:
            raise not_found(kind, file_id)
        return record

    def _corrupt(self, record: FileRecord, path: Path, size: int | None) -> GatewayError:
        where = path.relative_to(self._data.path)
        found = "is not there" if size is None else f"has {size} bytes on disk"
        differs = "; the size is right, the SHA-256 is not" if size == record.size_bytes else ""
        return conflict(
            f"{record.kind}_corrupt",
            f"{record.kind} {record.file_id}: {where} {found}, {record.size_bytes} were saved{differs}: it cannot be "
            f"used. Start from another {record.kind}, or put the file back from a copy",
            file=str(where),
            size_bytes=size,
            saved_size_bytes=record.size_bytes,
        )


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def _gone(record: FileRecord, gone_at: float, **known: object) -> GatewayError:
    by = record.gone_by or "request"
    return GatewayError(
        410,
        f"{record.kind}_expired",
        f"{record.kind} {record.file_id} {_WENT_BY[by]} at {iso(gone_at)}: start from a later state, or from "
        "an adapter that was exported",
        details={"gone_at": iso(gone_at), "gone_by": by, **known},
    )
