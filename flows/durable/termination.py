"""SIGTERM is heard wherever it lands.

Prefect raises it in whatever Python code runs at that moment. In an idle flow that is the event loop's own wait, which
ends the flow; but in a busy one it may be a callback of a socket, or a background task that nobody awaits. asyncio
reports an exception there and goes on: the flow would not hear that it was cancelled, and trains on until it is killed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from prefect.exceptions import TerminationSignal


@contextmanager
def sigterm_is_heard() -> Iterator[None]:
    """While the block runs, a SIGTERM that asyncio would only report cancels the current task, as others do."""
    loop, flow = asyncio.get_running_loop(), asyncio.current_task()
    former = loop.get_exception_handler()

    def on_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if isinstance(context.get("exception"), TerminationSignal) and flow is not None:
            flow.cancel("SIGTERM")
        elif former is not None:
            former(loop, context)
        else:
            loop.default_exception_handler(context)

    loop.set_exception_handler(on_exception)
    try:
        yield
    finally:
        loop.set_exception_handler(former)
