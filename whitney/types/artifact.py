"""What outlives a run: saved states and exported adapters."""

from __future__ import annotations

from pydantic import Field

from whitney.types.base import WireAnswer


class State(WireAnswer):
    """GET /states/{id}: weights and optimizer of a run at one moment, in `size_bytes` bytes.

    `complete`: the file is there, byte for byte as it was saved; an endpoint that does not say so is believed.
    `parent_state_id`: the state that the same run saved before it, else the one that the run began from; where that was
    an adapter, `parent_artifact_id`; at the root neither. `seq_id` is the operation that saved it, `labels` are its
    session's: for which flow run and attempt.
    """

    state_id: str
    run_id: str
    model: str
    size_bytes: int
    sha256: str
    created_at: str
    complete: bool = True
    parent_state_id: str | None = None
    parent_artifact_id: str | None = None
    session_id: str | None = None
    seq_id: int | None = None
    labels: dict[str, str] = Field(default_factory=dict)


class Health(WireAnswer):
    """GET /healthz."""

    status: str
    version: str
