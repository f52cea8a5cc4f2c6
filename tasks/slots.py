"""Slots of a concurrency limit that dead runs have left taken: they come back with the sessions they stand for.

How they are taken: `flows.durable.slots`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from prefect.logging import get_logger

from tasks.brief_api import brief_api
from whitney.labels import SLOTS

Labels = Mapping[str, str]
"""A session's."""


def free_slots(closed: Iterable[Labels], still_open: Iterable[Labels] = ()) -> list[str]:
    """Give back the slots of sessions that have been closed; the ids of the leases.

    A lease that a session which is still open shares stays: slots never come back before what they stand for is gone.
    Idempotent: Prefect answers the same for a lease that has ended. Never in the way of what matters more, so that a
    Prefect server that is gone is logged: the leases end by themselves.
    """
    leases = sorted(_leases(closed) - _leases(still_open))
    if not leases:
        return []
    try:
        with brief_api() as api:
            for lease in leases:
                api.release_concurrency_slots_with_lease(UUID(lease))
    except Exception as error:  # of whatever kind: see above
        get_logger("whitney.lifecycle").warning("slots could not be given back: %s", error)
        return []
    return leases


def _leases(sessions: Iterable[Labels]) -> set[str]:
    return {label for labels in sessions if _is_id(label := labels.get(SLOTS, ""))}


def _is_id(text: str) -> bool:
    """Anybody may label a session: what is no id is nobody's lease."""
    try:
        return bool(UUID(text))
    except ValueError:
        return False
