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

SCHEMA_VERSION = 1


class LedgerError(RuntimeError):
    """The ledger's file cannot be used by this version of the gateway."""


class Database:
    """A connection and its transactions. Not for several threads: the gateway has one event loop."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.row_factory = sqlite3.Row
        # With WAL, NORMAL survives a killed process; FULL also survives a power cut, at an fsync a commit, which a
        # ledger of bills and saved states is worth.
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
            self._connection.execute(f"PRAGMA {pragma}")
        self._ensure_schema(path)

    def _ensure_schema(self, path: Path) -> None:
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        if version == SCHEMA_VERSION:
            return
        if version != 0:
            raise LedgerError(
                f"{path} has ledger version {version}, this gateway reads version {SCHEMA_VERSION}: "
                "use the gateway that wrote it, or another data directory"
            )
        schema = files("gateway.ledger").joinpath("schema.sql").read_text(encoding="utf-8")
        # executescript() commits by itself, so the transaction is part of the script: all tables or none.
        self._connection.executescript(f"BEGIN;\n{schema}\nPRAGMA user_version = {SCHEMA_VERSION};\nCOMMIT;")

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


def pack(value: Any) -> bytes:
    """JSON, compressed: token lists shrink about five times at level 1."""
    return zstandard.compress(orjson.dumps(value), 1)


def unpack(blob: bytes) -> bytes:
    """The JSON text that `pack` compressed."""
    return zstandard.decompress(blob)
