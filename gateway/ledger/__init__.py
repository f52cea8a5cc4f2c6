"""The durable ledger: sessions, runs, operations, bills, files. One SQLite file in WAL mode, small readable SQL."""

from __future__ import annotations

from pathlib import Path

from gateway.ledger.database import Database, LedgerError
from gateway.ledger.files import Files
from gateway.ledger.operations import Ended, Operations
from gateway.ledger.records import FileRecord, OperationRecord, RunRecord, SessionRecord, iso
from gateway.ledger.runs import Runs
from gateway.ledger.sessions import Sessions
from whitney.types import WireErrorDetail

__all__ = ["Ended", "FileRecord", "Ledger", "LedgerError", "OperationRecord", "RunRecord", "SessionRecord", "iso"]

RUN_LOST = WireErrorDetail(
    code="run_lost",
    message="the gateway stopped while this operation ran; its run lived in memory and is lost. "
    "Open a new session and a run restored from the last saved state",
)


class Ledger:
    """The tables, and what has to hold when the gateway starts."""

    def __init__(self, path: Path) -> None:
        self._database = Database(path)
        self.sessions = Sessions(self._database)
        self.runs = Runs(self._database)
        self.operations = Operations(self._database)
        self.files = Files(self._database)
        self.transaction = self._database.transaction
        self.close = self._database.close

    def recover(self) -> int:
        """After a stop: runs lived in memory, so those that were not terminal are lost; how many there were."""
        with self.transaction():
            self.operations.abandon_unfinished(RUN_LOST)
            return self.runs.fail_unfinished("run_lost")
