"""What a flow tells whoever watches it in the same process: the terminal's progress, or a test.

Prefect has logs and artifacts for everybody else. A listener must not raise; nothing in a run depends on one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

EventKind = Literal[
    "warning",
    "prepared",
    "session_requested",
    "session_created",
    "session_opened",
    "evaluated",
    "cycle",
    "block_saved",
    "exported",
    "closing",
    "verdict",
    "session_closed",
    "finished",
    "pipeline",
    "stage",
    "stage_done",
    "gate",
    "paused",
    "resumed",
]


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened.

    `facts` by kind — warning: message, what somebody who pays for the run should know; prepared: algorithm, cycles,
    train, heldout, folder; session_requested: nothing, from here on something may be billed; session_created:
    session_id; session_opened: session_id, run_id of what is trained; evaluated: when ("before" | "after"), accuracy,
    loss, …; cycle: cycle (0-based), cycles, metrics, budget (the share used of it, None without one); block_saved:
    cycle, state_id, tokens (of the block); exported: path, sha256; closing: message, how far a bad end has come;
    verdict: message, closed, how it came out; session_closed: session_id, after whichever end; finished: the summary.

    Of a pipeline — pipeline: name, folder, stages (their names), once its run folder is there; stage: name, algorithm,
    number (from 1), stages (how many), a stage begins or is about to be adopted; stage_done: outcome (of the stage),
    number, stages, adopted (whether it was not run); gate: stage, passed, message, on_fail. Of a run that a person is
    asked about — paused: key, question, flow_run_id, timeout_s; resumed: key, go_on (the answer).
    """

    kind: EventKind
    facts: dict[str, Any] = field(default_factory=dict)


Listener = Callable[[Event], None]
_listeners: list[Listener] = []


def emit(kind: EventKind, **facts: Any) -> None:
    """Tell every listener of this process."""
    for listener in tuple(_listeners):
        listener(Event(kind, facts))


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Hear every event of this process while the block runs."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)
