"""The states behind a state, as the endpoint has them on record; those that have gone included."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from cli.columns import columns
from whitney.client import WhitneyClient
from whitney.errors import ApiError, NotFoundError
from whitney.labels import FLOW_RUN, attempt_of
from whitney.settings import WhitneySettings
from whitney.types import State

PATIENCE_S = 15.0
HEAD = ("STATE", "FROM", "RUN", "SEQ_ID", "ATTEMPT", "FLOW RUN", "SAVED", "")


async def ancestry(settings: WhitneySettings, state_id: str) -> list[tuple[State, bool]]:
    """The state and its ancestors, newest first, each with whether it is still to be had.

    Raises:
        NotFoundError: the endpoint never had `state_id`.
        WhitneyError: it cannot be asked.
    """
    found: list[tuple[State, bool]] = []
    seen: set[str] = set()
    next_id: str | None = state_id
    async with WhitneyClient(settings.model_copy(update={"retry_deadline_s": PATIENCE_S})) as client:
        while next_id is not None and next_id not in seen:
            seen.add(next_id)
            try:
                state, kept = await client.get_state(next_id), True
            except ApiError as error:
                known = _as_it_was(error)
                if known is None and (not found or not isinstance(error, NotFoundError)):
                    raise
                if known is None:  # an endpoint that forgets what it has deleted: the chain ends here
                    break
                state, kept = known, False
            found.append((state, kept))
            next_id = state.parent_state_id
    return found


def show(found: Sequence[tuple[State, bool]]) -> None:
    """Print a chain for people."""
    rows = [
        (
            state.state_id,
            state.parent_state_id or state.parent_artifact_id or "the beginning",
            state.run_id,
            state.seq_id,
            attempt_of(state.labels) if state.labels.get(FLOW_RUN) else None,
            state.labels.get(FLOW_RUN),
            state.created_at,
            "gone" if not kept else "" if state.complete else "NOT COMPLETE",
        )
        for state, kept in found
    ]
    print("\n".join(columns(HEAD, rows)))
    last, _ = found[-1]
    if last.session_id is None:
        print("this endpoint does not say what a state came from")
    elif last.parent_state_id is not None:
        print(f"{last.parent_state_id} is not on record any more")


def as_json(found: Sequence[tuple[State, bool]]) -> list[dict[str, Any]]:
    """A chain for machines, newest first."""
    return [{**state.model_dump(), "kept": kept} for state, kept in found]


def _as_it_was(error: ApiError) -> State | None:
    """The record of a state that has gone, where the endpoint's answer holds it."""
    try:
        return State.model_validate(error.details["lineage"])
    except (KeyError, ValidationError):
        return None
