"""What a run will ask of Whitney at most: sessions at once, operations by name."""

from __future__ import annotations

from flows.config import FlowConfig


def planned_sessions(config: FlowConfig) -> int:
    """How many sessions are open at once: one, or two where a teacher has one of its own."""
    teacher = getattr(config, "teacher", None)
    return 2 if teacher is not None and teacher.session == "own" else 1
