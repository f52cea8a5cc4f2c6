"""How long a run has been at work, all its attempts together: what a killed one took is known as of its last record."""

from __future__ import annotations

import time

from tasks.run_folder import RunFolder


class Stopwatch:
    """Runs while a process is at work on a run; what it shows is kept in the run folder, for the attempts to come."""

    __slots__ = ("_began", "_earlier", "_folder", "_process")

    def __init__(self, folder: RunFolder, process: str) -> None:
        self._began = time.monotonic()
        self._folder = folder
        self._process = process
        self._earlier = folder.read_seconds()

    def note(self) -> float:
        """Put it on record; the seconds of all attempts up to now."""
        seconds = {**self._earlier, self._process: round(time.monotonic() - self._began, 1)}
        self._folder.write_seconds(seconds)
        return round(sum(seconds.values()), 1)
