"""What Ctrl-C, SIGTERM and a closed terminal do to a run: the first closes its session, a second ends it."""

from __future__ import annotations

import asyncio
import contextvars
import os
import signal
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, TypeVar

from cli.failures import INTERRUPTED
from cli.prefect_setup import kill_temporary_server
from cli.terminal import Say

R = TypeVar("R")

CLOSING = "interrupted: cancelling the run and closing its session; once more ends this at once and leaves them"
LEFT = "whitney: ended at once"

# One press arrives twice, within milliseconds, where the process was started by another that passes signals on (make,
# uv): the terminal sends it to the whole group. Nobody presses twice on purpose so fast.
SAME_PRESS_S = 0.5

SHOW_CURSOR = b"\x1b[?25h"


def run_until_interrupted(
    flow_run: Coroutine[Any, Any, R], *, say: Say, left: Callable[[], Iterable[str]] = tuple
) -> R:
    """Run a coroutine to its end; its result.

    It runs in a thread of its own, because whoever owns the main thread owns the signals: Prefect's handler for SIGTERM
    raises wherever the process happens to be — the second time in the middle of closing a session, or inside the
    event loop itself, which then never ends. Outside the main thread Prefect leaves signals alone.

    After an interrupt the signals stay with this: what follows, stopping servers, takes a while, and a second press
    ends that as well. `cli.failures.interruptible`, around it all, gives them back.

    Args:
        flow_run: what to run; the first press cancels it.
        say: prints a line.
        left: what an end here and now would leave, and what to do about it: a line each.

    Raises:
        KeyboardInterrupt: a signal came, and the coroutine has ended without a result.
    """
    interruption = _Interruption(say, left)
    context = contextvars.copy_context()
    with interruption.hears_signals(), ThreadPoolExecutor(1, thread_name_prefix="flow") as thread:
        running = thread.submit(context.run, asyncio.run, interruption.wraps(flow_run))
        try:
            return running.result()
        except BaseException as error:
            if interruption.pressed:
                raise KeyboardInterrupt from error
            raise


class _Interruption:
    """Tells presses apart in the main thread, and cancels a task that runs in another."""

    def __init__(self, say: Say, left: Callable[[], Iterable[str]]) -> None:
        self._first_at: float | None = None
        self._say = say
        self._left = left
        self._cancel: Callable[[], object] | None = None

    @property
    def pressed(self) -> bool:
        """Whether a signal has come."""
        return self._first_at is not None

    async def wraps(self, flow_run: Coroutine[Any, Any, R]) -> R:
        """Run it as a task that a press can cancel."""
        task = asyncio.ensure_future(flow_run)
        loop = asyncio.get_running_loop()
        self._cancel = lambda: loop.call_soon_threadsafe(task.cancel)
        if self.pressed:  # the signal was faster than this thread
            task.cancel()
        return await task

    @contextmanager
    def hears_signals(self) -> Iterator[None]:
        """Take the signals while the block runs and, once one has come, from then on."""
        numbers = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # `nohup`: the run is to outlive its terminal
            numbers.append(signal.SIGHUP)
        former = {number: signal.signal(number, self._heard) for number in numbers}
        try:
            yield
        finally:
            if not self.pressed:
                for number, handler in former.items():
                    signal.signal(number, handler)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._first_at is not None:
            if now - self._first_at >= SAME_PRESS_S:
                self._leave()
            return
        self._first_at = now
        with suppress(RuntimeError):  # the loop has just closed
            if self._cancel is not None:
                self._cancel()
        try:
            self._say(CLOSING)
        except (RuntimeError, OSError):  # it came in the midst of writing another line; or the terminal is gone
            _write(CLOSING)

    def _leave(self) -> None:
        """End the process here and now, without waiting for any thread or lock."""
        if os.isatty(1):  # a bar that is torn off has hidden it
            with suppress(OSError):
                os.write(1, SHOW_CURSOR + b"\n")
        for line in (LEFT, *self._left()):
            _write(line)
        kill_temporary_server()
        os._exit(INTERRUPTED)


def _write(line: str) -> None:
    """To stderr, past every buffer and lock."""
    with suppress(OSError):
        os.write(2, f"{line}\n".encode())
