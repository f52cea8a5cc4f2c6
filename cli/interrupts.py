"""What Ctrl-C and SIGTERM do to a run: the first closes its session, a third leaves it."""

from __future__ import annotations

import asyncio
import contextvars
import os
import signal
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, TypeVar

from cli.failures import INTERRUPTED
from cli.prefect_setup import kill_temporary_server
from cli.terminal import Say

R = TypeVar("R")

CLOSING = "interrupted: closing the session"
STILL_CLOSING = "still closing the session; once more to leave it (it may go on billing)"


def run_until_interrupted(
    flow_run: Coroutine[Any, Any, R], *, say: Say, session: Callable[[], str | None] = lambda: None
) -> R:
    """Run a coroutine to its end; its result.

    It runs in a thread of its own, because whoever owns the main thread owns the signals: Prefect's handler for SIGTERM
    raises wherever the process happens to be — the second time in the middle of closing a session, or inside the
    event loop itself, which then never ends. Outside the main thread Prefect leaves signals alone.

    Args:
        flow_run: what to run; the first signal cancels it.
        say: prints a line.
        session: the id of the open session, as far as it is known.

    Raises:
        KeyboardInterrupt: a signal came, and the coroutine has ended without a result.
    """
    interruption = _Interruption(say, session)
    context = contextvars.copy_context()
    with interruption.hears_signals(), ThreadPoolExecutor(1, thread_name_prefix="flow") as thread:
        running = thread.submit(context.run, asyncio.run, interruption.wraps(flow_run))
        try:
            return running.result()
        except BaseException as error:
            if interruption.count:
                raise KeyboardInterrupt from error
            raise


class _Interruption:
    """Counts signals in the main thread, and cancels a task that runs in another."""

    def __init__(self, say: Say, session: Callable[[], str | None]) -> None:
        self.count = 0
        self._say = say
        self._session = session
        self._cancel: Callable[[], object] | None = None

    async def wraps(self, flow_run: Coroutine[Any, Any, R]) -> R:
        """Run it as a task that a signal can cancel; once, since a second time would cancel the closing."""
        task = asyncio.ensure_future(flow_run)
        loop = asyncio.get_running_loop()
        cancelled = False

        def cancel_once() -> None:
            nonlocal cancelled
            if not cancelled:
                cancelled = True
                task.cancel()

        self._cancel = lambda: loop.call_soon_threadsafe(cancel_once)
        if self.count:  # the signal was faster than this thread
            cancel_once()
        return await task

    @contextmanager
    def hears_signals(self) -> Iterator[None]:
        """Take both signals while the block runs."""
        numbers = (signal.SIGINT, signal.SIGTERM)
        former = {number: signal.signal(number, self._heard) for number in numbers}
        try:
            yield
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        self.count = count = self.count + 1  # the next signal may come before this one has been dealt with
        if count > 2:
            self._leave()
        with suppress(RuntimeError):  # the loop has just closed
            if count == 1 and self._cancel is not None:
                self._cancel()
        line = CLOSING if count == 1 else STILL_CLOSING
        try:
            self._say(line)
        except RuntimeError:  # in the midst of writing the line about the signal before
            _write(line)

    def _leave(self) -> None:
        """End the process here and now, without waiting for any thread or lock."""
        session = self._session()
        left = f"session {session}: `whitney reap --session {session}` closes it" if session else "no known session"
        _write(f"whitney: left {left}")
        kill_temporary_server()
        os._exit(INTERRUPTED)


def _write(line: str) -> None:
    """To stderr, past every buffer and lock."""
    with suppress(OSError):
        os.write(2, f"{line}\n".encode())
