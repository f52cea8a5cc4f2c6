"""What Ctrl-C, SIGTERM and a closed terminal do to `whitney up`: the first stops it in order, a second at once."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from cli.failures import INTERRUPTED
from cli.interrupts import SAME_PRESS_S
from cli.up_keeper import kill_descendants

LEFT = b"whitney: ended at once; sessions of runs that were at work stay open until the reaper closes them\n"


class Signals:
    """Tells presses apart."""

    def __init__(self) -> None:
        self._first_at: float | None = None
        self._stopping = False

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Take the signals while the block runs."""
        numbers = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # `nohup`: it is to outlive its terminal
            numbers.append(signal.SIGHUP)
        former = {number: signal.signal(number, self._heard) for number in numbers}
        try:
            yield
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)

    def stopping(self) -> None:
        """From now on a signal interrupts nothing any more: what is being stopped is stopped to its end."""
        self._stopping = True

    def _heard(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._first_at is None:
            self._first_at = now
            if not self._stopping:
                raise KeyboardInterrupt
        elif now - self._first_at >= SAME_PRESS_S:
            kill_descendants()
            with suppress(OSError):  # the terminal has been closed
                os.write(2, LEFT)
            os._exit(INTERRUPTED)
