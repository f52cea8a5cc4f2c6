"""Sessions: what is opened before anything is billed, and must be closed whatever happens."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from whitney.types.base import CreateKey, WireAnswer, WireRequest
from whitney.types.run import Run

SessionStatus = Literal["open", "closed"]


class CreateSession(WireRequest):
    """The body of POST /sessions."""

    create_key: CreateKey
    labels: dict[str, str] = Field(default_factory=dict)


class Session(WireAnswer):
    """A session with its runs.

    `created_at`: when it was opened, ISO 8601; an endpoint may not say.
    `ttl_s`: seconds without a heartbeat after which the endpoint cancels and closes it; None or 0: never.
    """

    session_id: str
    status: SessionStatus
    created_at: str | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    runs: list[Run] = Field(default_factory=list)
    reason: str | None = None
    heartbeat_age_s: float | None = None
    ttl_s: float | None = None


class SessionList(WireAnswer):
    """The answer of GET /sessions."""

    sessions: list[Session]
