"""Parts that are started again when they die, a few times; and nothing of them left running at the end."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections import deque
from contextlib import ExitStack, suppress
from pathlib import Path

from cli.failures import CommandFailedError
from cli.terminal import Say
from cli.up_parts import Part, PartError, Process
from gateway.keeper import how_it_ended

RESTARTS = 3
WITHIN_S = 600.0
LOOK_EVERY_S = 0.25
ORPHANS_S = 25.0
"""How long flow runs that have lost their worker have to close their sessions, before they are killed."""

_PR_SET_CHILD_SUBREAPER = 36


class Kept:
    """A part that runs, or is to."""

    def __init__(self, part: Part, say: Say) -> None:
        self._part = part
        self._say = say
        self._stack = ExitStack()
        self._process: Process | None = None
        self._deaths: deque[float] = deque(maxlen=RESTARTS + 1)

    @property
    def pid(self) -> int | None:
        """Of its process."""
        return self._process.pid if self._process else None

    def spawn(self) -> None:
        """Start it, and do not wait."""
        self._process = self._stack.enter_context(self._part.spawn())

    def wait(self) -> None:
        """Return once it is ready.

        Raises:
            PartError: it does not get ready.
        """
        if self._process is not None:
            self._part.wait(self._process)

    def close(self) -> None:
        """Stop it, and all that it has started; bounded, and idempotent."""
        self._stack.close()
        self._process = None

    def look(self) -> None:
        """Start it again if it has died.

        Raises:
            CommandFailedError: it has died too often.
        """
        if self._process is None or (code := self._process.poll()) is None:
            return
        how = how_it_ended(code)
        while True:
            self._deaths.append(time.monotonic())
            if len(self._deaths) > RESTARTS and self._deaths[-1] - self._deaths[0] < WITHIN_S:
                raise CommandFailedError(
                    f"{self._part.name} {how}, once more after {RESTARTS} restarts within {WITHIN_S / 60:g} minutes: "
                    f"everything is stopped. Its log: {self._part.log}"
                )
            self._say(f"Warning: {self._part.name} {how}; starting it again (its log: {self._part.log})")
            self.close()
            try:
                self.spawn()
                self.wait()
            except PartError as error:
                how = f"does not start: {error}"
            else:
                self._say(f"{self._part.name[:1].upper()}{self._part.name[1:]} is up again")
                return


def keep(parts: list[Kept]) -> None:
    """Look after the parts, until an exception comes: a signal's, or that of a part which died too often."""
    while True:
        for part in parts:
            part.look()
        for pid in orphans(parts):
            _reap(pid)
        time.sleep(LOOK_EVERY_S)


def adopt_orphans() -> None:
    """Become the parent of processes whose own has died: flow runs of a worker that was killed. On Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_orphans(parts: list[Kept]) -> None:
    """Have flow runs that lost their worker close their sessions and end; kill what does not."""
    for number, patience_s in ((signal.SIGTERM, ORPHANS_S), (signal.SIGKILL, 5.0)):
        deadline = time.monotonic() + patience_s
        told: set[int] = set()
        while (left := {pid for pid in orphans(parts) if not _reap(pid)}) and time.monotonic() < deadline:
            for pid in left - told:
                told.add(pid)
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            time.sleep(LOOK_EVERY_S)


def orphans(parts: list[Kept]) -> set[int]:
    """Children of this process that are none of its parts."""
    return _children(os.getpid()) - {part.pid for part in parts}


def kill_descendants() -> None:
    """SIGKILL to everything below this process, without waiting for anything."""
    below, found = [os.getpid()], set[int]()
    while below:
        children = _children(below.pop())
        found |= children
        below.extend(children)
    for pid in found:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _children(pid: int) -> set[int]:
    """As Linux lists them; empty elsewhere."""
    found: set[int] = set()
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # the thread has ended
            found |= {int(child) for child in listed.read_text().split()}
    return found


def _reap(pid: int) -> bool:
    """Whether it has ended; if so, it is off the list of processes."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True
