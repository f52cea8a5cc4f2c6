"""The ledger's rows as values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import orjson

from whitney.types import TERMINAL_OPERATION, TERMINAL_RUN, CreateRun, Usage, WireErrorDetail


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """A row of `sessions`."""

    session_id: str
    create_key: str
    digest: str
    labels: dict[str, str]
    status: str
    reason: str | None
    created_at: float
    heartbeat_at: float
    closed_at: float | None


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A row of `runs`."""

    run_id: str
    session_id: str
    create_key: str
    digest: str
    spec: CreateRun
    status: str
    reason: str | None
    next_seq_id: int
    created_at: float

    @property
    def terminal(self) -> bool:
        """Whether nothing more will ever happen to it."""
        return self.status in TERMINAL_RUN


@dataclass(frozen=True, slots=True)
class OperationRecord:
    """A row of `operations`, without its payload. `result` is JSON text."""

    run_id: str
    seq_id: int
    kind: str
    sampler_id: str | None
    digest: str
    status: str
    result: bytes | None
    error: WireErrorDetail | None
    usage: Usage

    @property
    def terminal(self) -> bool:
        """Whether it has ended, one way or another."""
        return self.status in TERMINAL_OPERATION

    @property
    def expired(self) -> bool:
        """Whether it succeeded and its result has been dropped; every result is at least `{}`."""
        return self.status == "succeeded" and self.result is None

    def on_the_wire(self) -> dict[str, object]:
        """The wire's `Operation`. A result may hold a million numbers: its JSON is passed through unread."""
        return {
            "run_id": self.run_id,
            "seq_id": self.seq_id,
            "kind": self.kind,
            "status": self.status,
            "result": None if self.result is None else orjson.Fragment(self.result),
            "error": None if self.error is None else self.error.model_dump(),
            "usage": self.usage.model_dump(),
        }


@dataclass(frozen=True, slots=True)
class FileRecord:
    """A row of `files`: a saved state or an exported adapter.

    `seq_id` is that of the operation that saved it; `gone_by` says why its bytes went at `gone_at`, if they have.
    """

    file_id: str
    kind: str
    run_id: str
    model: str
    rank: int
    alpha: float
    size_bytes: int
    sha256: str
    created_at: float
    seq_id: int | None = None
    gone_at: float | None = None
    gone_by: str | None = None


def iso(unix_s: float) -> str:
    """A moment as the wire writes it: UTC, ISO 8601, to the second."""
    return datetime.fromtimestamp(unix_s, UTC).isoformat(timespec="seconds")
