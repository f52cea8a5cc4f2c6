"""A user's synchronous function in a thread of its own, which nothing waits for when the flow is over."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any


async def in_daemon_thread(name: str, call: Callable[[], Any]) -> Any:
    """What `call` returns, or raises; `name` is the function's, for messages.

    Not `asyncio.to_thread`: a process waits for its threads at its end, and a function that never returns would keep it
    there after Ctrl-C, with the session long closed.

    Raises:
        RuntimeError: it raised what must not pass through a coroutine: StopIteration, SystemExit, KeyboardInterrupt.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def settle(value: Any, error: Exception | None) -> None:
        if future.done():  # its caller was cancelled
            return
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)

    def work() -> None:
        value = None
        failed: Exception | None = None
        try:
            value = context.run(call)
        except (StopIteration, SystemExit, KeyboardInterrupt, GeneratorExit) as error:
            failed = RuntimeError(f"{name} raised {type(error).__name__}")
            failed.__cause__ = error
        except Exception as error:  # whatever it is, it belongs to whoever awaits
            failed = error
        with suppress(RuntimeError):  # the loop is closed: nobody awaits any more
            loop.call_soon_threadsafe(settle, value, failed)

    threading.Thread(target=work, name=name, daemon=True).start()
    return await future
