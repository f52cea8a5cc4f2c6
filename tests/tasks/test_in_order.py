"""Operations that are awaited together: whose failure is told, and what does not wait for the others."""

from __future__ import annotations

import asyncio

import pytest
from prefect.exceptions import TerminationSignal

from tasks.operations import in_order
from tasks.run import Completed


async def answers(result: str) -> Completed:
    await asyncio.sleep(0)
    return Completed({"is": result})


async def fails(error: BaseException, turns: int = 0) -> Completed:
    for _ in range(turns):
        await asyncio.sleep(0)
    raise error


async def test_answers_come_in_the_order_of_the_posts() -> None:
    assert [one.result["is"] for one in await in_order(answers("a"), answers("b"))] == ["a", "b"]
    assert await in_order() == []


async def test_the_failure_that_was_posted_first_is_raised_although_it_is_heard_of_last() -> None:
    with pytest.raises(ValueError, match="cause"):
        await in_order(answers("a"), fails(ValueError("cause"), turns=5), fails(KeyError("consequence")))


def tripped_over_sigterm() -> ValueError:
    """What is left of a SIGTERM that Prefect's task engine could not record: it raises, while handling it."""
    error = ValueError("Task run is not set")
    error.__context__ = TerminationSignal(signal=15)
    return error


@pytest.mark.parametrize("raised", [TerminationSignal(signal=15), tripped_over_sigterm()])
async def test_sigterm_in_one_operation_is_not_held_up_by_another_that_never_ends(raised: BaseException) -> None:
    unwound = asyncio.Event()

    async def endless() -> Completed:
        try:
            await asyncio.Event().wait()
        finally:
            unwound.set()
        raise AssertionError

    async with asyncio.timeout(10):
        with pytest.raises(TerminationSignal):
            await in_order(fails(raised, turns=2), endless())
    assert unwound.is_set()


async def test_who_stops_waiting_stops_the_operations_tasks() -> None:
    stopped: list[int] = []

    async def endless(number: int) -> Completed:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(number)
        raise AssertionError

    together = asyncio.ensure_future(in_order(endless(1), endless(2)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    together.cancel()
    with pytest.raises(asyncio.CancelledError):
        await together
    assert sorted(stopped) == [1, 2]
