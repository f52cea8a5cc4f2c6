"""How long a run has been at work, all its attempts together: what a killed one took is known as of its last record."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from tasks.run_folder import RunFolder


class Stopwatch:
    """Runs while a process is at work on a run; what it shows is kept in the run folder, for the attempts to come."""

    __slots__ = ("_began", "_earlier", "_folder", "_process", "_stopped_at")

    def __init__(self, folder: RunFolder, process: str) -> None:
        self._began = time.monotonic()
        self._folder = folder
        self._process = process
        self._stopped_at: float | None = None
        self._earlier = folder.read_seconds()

    def note(self) -> float:
        """Put it on record; the seconds of all attempts up to now."""
        self._folder.write_seconds({**self._earlier, self._process: round(self._here(), 1)})
        return round(self.read(), 1)

    def read(self) -> float:
        """The seconds of all attempts up to now."""
        others = sum(seconds for process, seconds in self._earlier.items() if process != self._process)
        return others + self._here()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """While the block runs, as a person thinks, no time passes; what has passed before is on record."""
        self.note()
        self._stopped_at = time.monotonic()
        try:
            yield
        finally:
            self._began += time.monotonic() - self._stopped_at
            self._stopped_at = None

    def _here(self) -> float:
        now = time.monotonic() if self._stopped_at is None else self._stopped_at
        return now - self._began
