"""SIGTERM while the event loop is busy: the flow hears of it, and nobody else's exception is taken for one."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import pytest
from prefect.exceptions import TerminationSignal
from prefect.utilities.engine import capture_sigterm

from flows.durable.termination import sigterm_is_heard
from whitney.heartbeat import beat


def strike() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


async def waiting() -> None:
    with sigterm_is_heard():
        await asyncio.Event().wait()


@pytest.fixture(autouse=True)
def _survive(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Prefect's handler in place, as it is in a flow's process."""
    with capture_sigterm():
        yield


async def test_a_sigterm_that_lands_in_a_callback_cancels_the_flow() -> None:
    flow = asyncio.create_task(waiting())
    asyncio.get_running_loop().call_later(0.01, strike)
    async with asyncio.timeout(10):
        with pytest.raises(asyncio.CancelledError, match="SIGTERM"):
            await flow


async def test_a_sigterm_that_lands_in_the_heartbeat_cancels_the_flow() -> None:
    class Client:
        async def heartbeat(self, session_id: str) -> None:
            strike()

    async def beating() -> None:
        with sigterm_is_heard():
            async with beat(Client(), "ses_1", every_s=0.01):  # type: ignore[arg-type] # what it uses of a client
                await asyncio.Event().wait()

    flow = asyncio.create_task(beating())
    async with asyncio.timeout(10):
        with pytest.raises(asyncio.CancelledError, match="SIGTERM"):
            await flow


async def test_other_exceptions_go_where_they_went_before() -> None:
    heard: list[BaseException] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: heard.append(context["exception"]))
    try:
        with sigterm_is_heard():
            loop.call_soon({}.__getitem__, "missing")
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        loop.call_exception_handler({"message": "", "exception": TerminationSignal(signal=15)})
    finally:
        loop.set_exception_handler(None)
    assert [type(error) for error in heard] == [KeyError, TerminationSignal]
