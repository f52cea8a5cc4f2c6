"""Sessions: opened before anything is billed, closed when every run is terminal, expired when their owner is silent."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.errors import conflict, invalid, key_conflict, not_found, shorten
from gateway.execution import new_id
from gateway.ledger import RunRecord, SessionRecord, iso
from gateway.parts import Parts, logger
from gateway.runs import RunRules, session_closed
from gateway.validation import digest
from whitney.types import CreateSession


class SessionRules:
    """The life cycle of sessions."""

    def __init__(self, parts: Parts, runs: RunRules) -> None:
        self._ledger = parts.ledger
        self._ttl_s = parts.session_ttl_s
        self._clock = parts.clock
        self._runs = runs
        # Time in which the gateway was down is no silence of the owner's.
        self._started_at = parts.clock()

    def create(self, request: CreateSession) -> SessionRecord:
        """The session of this create_key, made if there is none."""
        body = digest(request.model_dump())
        existing = self._ledger.sessions.by_key(request.create_key)
        if existing is None:
            session_id = new_id("ses")
            self._ledger.sessions.add(session_id, request.create_key, body, request.labels, self._clock())
            return self.get(session_id)
        if existing.digest != body:
            raise key_conflict("session", existing.session_id)
        return existing

    def get(self, session_id: str) -> SessionRecord:
        """One session, or 404."""
        record = self._ledger.sessions.get(session_id)
        if record is None:
            raise not_found("session", session_id)
        return record

    def find(self, labels: Mapping[str, str], status: str | None) -> list[SessionRecord]:
        """Sessions that carry all of `labels`."""
        if status not in (None, "open", "closed"):
            raise invalid("status", f"{shorten(status)!r} is not a session's status; use open or closed")
        return self._ledger.sessions.find(labels, status)

    def on_the_wire(self, session: SessionRecord) -> dict[str, object]:
        """The wire's `Session`, with its runs."""
        return {
            "session_id": session.session_id,
            "status": session.status,
            "created_at": iso(session.created_at),
            "labels": session.labels,
            "runs": [self._runs.on_the_wire(run) for run in self._runs_of(session.session_id)],
            "reason": session.reason,
            "heartbeat_age_s": self._silent_s(session),
            "ttl_s": self._ttl_s or None,
        }

    def heartbeat(self, session_id: str) -> SessionRecord:
        """The owner lives. 409 when the session is closed: its owner should stop working on it."""
        session = self.get(session_id)
        if session.status != "open":
            raise session_closed(session)
        self._ledger.sessions.beat(session_id, self._clock())
        return self.get(session_id)

    def close(self, session_id: str, reason: str | None = None) -> SessionRecord:
        """Close; closing twice is closing once. 409 while a run is not terminal."""
        if self.get(session_id).status == "open":
            going = [run.run_id for run in self._runs_of(session_id) if not run.terminal]
            if going:
                raise conflict(
                    "run_not_terminal",
                    f"session {session_id} has {len(going)} runs that are not terminal ({', '.join(going[:5])}): "
                    "cancel or finish each and poll until it is",
                    runs=going,
                )
            self._ledger.sessions.close(session_id, reason, self._clock())
        return self.get(session_id)

    def expire(self) -> None:
        """Cancel the runs of sessions whose owner is silent for longer than the TTL; close those that have ended.

        A run that is executing an operation ends a little later, so its session is closed by a later call.
        """
        if self._ttl_s <= 0:
            return
        for session in self._ledger.sessions.find({}, "open"):
            if self._silent_s(session) <= self._ttl_s:
                continue
            for run in self._runs_of(session.session_id):
                if not run.terminal:
                    self._runs.cancel(run.run_id, "expired")
            if all(run.terminal for run in self._runs_of(session.session_id)):
                self.close(session.session_id, "expired")
                logger.warning("session %s expired: no heartbeat for %g s", session.session_id, self._ttl_s)

    def _runs_of(self, session_id: str) -> list[RunRecord]:
        return self._ledger.runs.of_session(session_id)

    def _silent_s(self, session: SessionRecord) -> float:
        return max(0.0, self._clock() - max(session.heartbeat_at, self._started_at))
