"""Endpoints that this process has started and keeps running; every client of this process can ask how they fare.

A client asks again for minutes, ever more rarely, for it cannot tell an endpoint that restarts from one that is gone,
and must spare one that others use. Of an endpoint that is this process's own it need not guess.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Kept:
    """How an endpoint has fared: how its process has ended, each time, and why it does not come back, if so."""

    ends: list[str] = field(default_factory=list)
    lost: str | None = None


_KEPT: dict[str, Kept] = {}


def keep(base_url: str) -> Kept:
    """The record of an endpoint, which is this process's own from now on. Once `lost`, it is not waited for."""
    return _KEPT.setdefault(base_url, Kept())


def kept(base_url: str | None) -> Kept | None:
    """The record of an endpoint; None of one that is somebody else's."""
    return _KEPT.get(base_url) if base_url else None


def forget(base_url: str) -> None:
    """The endpoint is no longer this process's own; another may come to listen there. Idempotent."""
    _KEPT.pop(base_url, None)
