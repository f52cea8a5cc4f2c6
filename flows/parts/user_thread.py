"""A user's synchronous function in a thread of its own, which nothing waits for when the flow is over."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from prefect.exceptions import ExternalSignal, PrefectSignal

from tasks.redaction import told


async def in_daemon_thread(name: str, call: Callable[[], Any]) -> Any:
    """What `call` returns, or raises; `name` is the function's, for messages.

    Not `asyncio.to_thread`: a process waits for its threads at its end, and a function that never returns would keep it
    there after Ctrl-C, with the session long closed.

    Raises:
        RuntimeError: it raised what must not pass through a coroutine: StopIteration, or what is no Exception, as
            SystemExit, CancelledError and a panic of Rust are.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def settle(value: Any, error: BaseException | None) -> None:
        if future.done():  # its caller was cancelled
            return
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)

    def work() -> None:
        value = None
        failed: BaseException | None = None
        try:
            value = context.run(call)
        except BaseException as error:  # a thread that died with it would leave its caller waiting for ever
            failed = error if _may_pass(error) else as_failure(name, error)
        with suppress(RuntimeError):  # the loop is closed: nobody awaits any more
            loop.call_soon_threadsafe(settle, value, failed)

    threading.Thread(target=work, name=name, daemon=True).start()
    return await future


def as_failure(name: str, error: BaseException) -> RuntimeError:
    """A failure of the function `name`, for what it raised and must not be taken for an order to the process."""
    failure = RuntimeError(f"{name} raised {told(error)}")
    failure.__cause__ = error
    return failure


def _may_pass(error: BaseException) -> bool:
    """Whether awaiting may raise it. A SIGTERM may: Prefect raises it in the operation that the function waits for."""
    if isinstance(error, ExternalSignal | PrefectSignal):
        return True
    return isinstance(error, Exception) and not isinstance(error, StopIteration)
