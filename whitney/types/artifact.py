"""What outlives a run: saved states and exported adapters."""

from __future__ import annotations

from whitney.types.base import WireAnswer


class State(WireAnswer):
    """GET /states/{id}: weights and optimizer of a run at one moment."""

    state_id: str
    run_id: str
    model: str
    size_bytes: int
    sha256: str
    created_at: str


class Health(WireAnswer):
    """GET /healthz."""

    status: str
    version: str
