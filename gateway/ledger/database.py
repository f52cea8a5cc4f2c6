"""The ledger's file: opened once, in WAL mode, by the one process that holds the data directory."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import orjson
import zstandard

SCHEMA_VERSION = 2

_SMALL_TABLES = ("sessions", "runs", "billing", "files")

# A larger file is looked through without its operations: half a million of them take seconds.
_LOOKED_THROUGH_BYTES = 64_000_000


class LedgerError(RuntimeError):
    """The ledger's file is damaged, or cannot be used by this version of the gateway."""


class Database:
    """A connection and its transactions. Not for several threads: the gateway has one event loop."""

    def __init__(self, path: Path) -> None:
        """Open the file, or make it.

        Raises:
            LedgerError: it is damaged, or of a version that this gateway does not read.
            sqlite3.DatabaseError: it cannot be used for another reason, a full disk, say.
        """
        self._connection = sqlite3.connect(path, isolation_level=None)
        try:
            self._prepare(path)
        except UnicodeDecodeError as error:  # SQLite's words about a damaged schema quote it, bytes and all
            self.close()
            raise LedgerError(_damaged(path, "its schema is not text")) from error
        except BaseException:
            self.close()
            raise

    def _prepare(self, path: Path) -> None:
        self._connection.row_factory = sqlite3.Row
        # With WAL, NORMAL survives a killed process; FULL also survives a power cut, at an fsync a commit, which a
        # ledger of bills and saved states is worth.
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
            self._connection.execute(f"PRAGMA {pragma}")
        self._ensure_schema(path)
        self._require_sound(path)

    def _ensure_schema(self, path: Path) -> None:
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        if version == SCHEMA_VERSION:
            return
        if version not in (0, 1):
            raise LedgerError(
                f"{path} has ledger version {version}, this gateway reads versions up to {SCHEMA_VERSION}: "
                "use the gateway that wrote it, or another data directory"
            )
        with self.transaction():
            # A ledger killed half-way would be of no version: all statements or none.
            for statement in _statements("schema.sql" if version == 0 else "from_1_to_2.sql"):
                self._connection.execute(statement)
            if version == 1:
                self._name_what_saved_each_file()
            self._connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def _require_sound(self, path: Path) -> None:
        """Find damage at the start, and not when somebody asks for a bill."""
        for table in (*_SMALL_TABLES, "operations"):
            self.one(f"SELECT 1 FROM {table}")  # one that is missing is no damage to SQLite
        all_of_it = path.stat().st_size <= _LOOKED_THROUGH_BYTES
        for what in ("1",) if all_of_it else _SMALL_TABLES:
            (finding,) = self.all(f"PRAGMA integrity_check({what})")[0]
            if finding != "ok":
                raise LedgerError(_damaged(path, finding.splitlines()[-1]))
        for table in _SMALL_TABLES:
            try:
                for _ in self._connection.execute(f"SELECT * FROM {table}"):
                    pass
            except (UnicodeDecodeError, sqlite3.OperationalError) as error:  # whose words quote the row
                raise LedgerError(_damaged(path, f"a row of {table} is not text")) from error

    def _name_what_saved_each_file(self) -> None:
        saving = "SELECT run_id, seq_id, result FROM operations WHERE kind IN ('save_state', 'export_lora')"
        for row in self.all(f"{saving} AND result IS NOT NULL"):
            result = orjson.loads(unpack(row["result"]))
            file_id = result.get("state_id") or result.get("artifact_id")
            self.execute("UPDATE files SET seq_id = ? WHERE file_id = ?", row["seq_id"], file_id)

    def close(self) -> None:
        """Close the file; idempotent."""
        self._connection.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All statements inside, or none. Nested use joins the outer transaction."""
        if self._connection.in_transaction:
            yield
            return
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            # A COMMIT that fails (a full disk) can leave the transaction open, and later statements would join it;
            # or SQLite has rolled back by itself.
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    def execute(self, sql: str, *parameters: Any) -> int:
        """Run a statement; how many rows it changed."""
        return self._connection.execute(sql, parameters).rowcount

    def one(self, sql: str, *parameters: Any) -> sqlite3.Row | None:
        """The first row, or None."""
        row: sqlite3.Row | None = self._connection.execute(sql, parameters).fetchone()
        return row

    def all(self, sql: str, *parameters: Any) -> list[sqlite3.Row]:
        """Every row."""
        return self._connection.execute(sql, parameters).fetchall()


def _damaged(path: Path, finding: str) -> str:
    return f"the ledger {path} is damaged ({finding}): restore it from a copy, or use another --data-dir"


def _statements(name: str) -> Iterator[str]:
    """The statements of a script, one by one: `executescript` would commit the transaction they belong to."""
    statement = ""
    for line in files("gateway.ledger").joinpath(name).read_text(encoding="utf-8").splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def pack(value: Any) -> bytes:
    """JSON, compressed: token lists shrink about five times at level 1."""
    return zstandard.compress(orjson.dumps(value), 1)


def unpack(blob: bytes) -> bytes:
    """The JSON text that `pack` compressed."""
    return zstandard.decompress(blob)
