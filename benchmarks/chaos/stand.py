"""A gateway that serves one scenario after another: its faults are exchanged, and what kills it brings it back."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from gateway.faults import CRASH_EXIT_CODE
from gateway.launch import GatewayProcess, start_gateway
from gateway.storage import DataDirectory


class Stand:
    """A deterministic gateway process with the tiny model, on one port and data directory throughout."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = ExitStack()
        self.gateway: GatewayProcess
        self.exits: list[int] = []

    def __enter__(self) -> Self:
        self._start(0)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def script(self, lines: Sequence[dict[str, Any]]) -> None:
        """These faults from now on, everything counted from 0."""
        self.gateway.set_faults(*lines)

    def look(self) -> None:
        """If the gateway has ended, start it again, as whatever watches over a service does."""
        code = self.gateway.process.poll()
        if code is None:
            return
        self.exits.append(code)
        # Without a fault: a script that is read anew does not know what has fired.
        self._start(urlsplit(self.gateway.base_url).port or 0)

    @property
    def crashes(self) -> int:
        """How often a scripted crash has ended it."""
        return self.exits.count(CRASH_EXIT_CODE)

    def state_file(self, state_id: str) -> Path:
        """Where a saved state lies."""
        return DataDirectory(self.gateway.data_dir).file("state", state_id)

    @contextmanager
    def ledger(self) -> Iterator[sqlite3.Connection]:
        """The gateway's ledger, to be read only."""
        path = DataDirectory(self.gateway.data_dir).ledger
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            connection.row_factory = sqlite3.Row
            yield connection

    def _start(self, port: int) -> None:
        self._stack.close()
        options = ["--deterministic", "--threads", "1"]
        self.gateway = self._stack.enter_context(
            start_gateway(self._folder / "gateway", port=port, extra_args=options, faults=[], timeout_s=180)
        )
