"""Whatever a user's function raises in its thread, whoever awaits it hears of it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import Any

import pytest
from prefect.exceptions import TerminationSignal

from flows.parts.user_thread import in_daemon_thread

LIVENESS_S = 10.0


class PanicException(BaseException):
    pass


def raising(error: BaseException) -> Callable[[], Any]:
    def call() -> Any:
        raise error

    return call


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (PanicException("called `Option::unwrap()`"), "mine raised PanicException: called `Option::unwrap()`"),
        (asyncio.CancelledError(), "mine raised CancelledError"),
        (BaseExceptionGroup("two", [PanicException()]), "mine raised BaseExceptionGroup: two (1 sub-exception)"),
        (StopIteration(), "mine raised StopIteration"),
        (SystemExit(0), "mine raised SystemExit: 0"),
    ],
)
async def test_what_is_no_ordinary_error_becomes_one_that_names_it(error: BaseException, said: str) -> None:
    with pytest.raises(RuntimeError) as failure:
        await asyncio.wait_for(in_daemon_thread("mine", raising(error)), LIVENESS_S)
    assert str(failure.value) == said
    assert failure.value.__cause__ is error


@pytest.mark.parametrize("error", [LookupError("no such thing"), TerminationSignal(signal.SIGTERM)])
async def test_an_error_and_an_order_to_stop_arrive_as_they_are(error: BaseException) -> None:
    with pytest.raises(type(error)) as failure:
        await asyncio.wait_for(in_daemon_thread("mine", raising(error)), LIVENESS_S)
    assert failure.value is error
