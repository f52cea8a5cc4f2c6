from __future__ import annotations

import asyncio
import logging
from typing import Any

import httpx
import pytest
from scripted_endpoint import FakeTime, settings

from whitney.client import WhitneyClient
from whitney.heartbeat import beat, pause_s


class Pulse:
    """Counts beats, and answers them from a list of statuses, then with 200."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)
        self.beats = 0
        self.three_beats = asyncio.Event()

    def client(self) -> WhitneyClient:
        retry = FakeTime().policy(deadline_s=0)
        return WhitneyClient(settings(), transport=httpx.MockTransport(self.handle), retry=retry)

    def handle(self, request: httpx.Request) -> httpx.Response:
        assert request.url.path.endswith("/sessions/ses_1/heartbeat")
        self.beats += 1
        if self.beats >= 3:
            self.three_beats.set()
        return httpx.Response(self.statuses.pop(0) if self.statuses else 200, json={})


def beating() -> list[asyncio.Task[Any]]:
    return [task for task in asyncio.all_tasks() if task.get_name() == "whitney-heartbeat-ses_1"]


async def test_a_session_is_beaten_while_the_block_runs_and_no_longer() -> None:
    pulse = Pulse()
    async with pulse.client() as client:
        async with beat(client, "ses_1", every_s=0.001):
            await asyncio.wait_for(pulse.three_beats.wait(), 30)
        assert beating() == []
        beats = pulse.beats
        await asyncio.sleep(0.01)
        assert pulse.beats == beats


@pytest.mark.parametrize(
    ("ttl_s", "pause"), [(None, 60), (0, 60), (1800, 60), (180, 60), (30, 10), (0.3, pytest.approx(0.1))]
)
def test_two_beats_may_be_lost_before_a_session_is(ttl_s: float | None, pause: float) -> None:
    assert pause_s(ttl_s) == pause


async def test_a_short_lived_session_is_beaten_as_often_as_it_asks_for() -> None:
    pulse = Pulse()
    async with pulse.client() as client, beat(client, "ses_1", ttl_s=0.003):
        await asyncio.wait_for(pulse.three_beats.wait(), 30)


async def test_beats_that_fail_for_now_are_told_and_the_next_one_comes(caplog: pytest.LogCaptureFixture) -> None:
    pulse = Pulse(503, 429)
    async with pulse.client() as client, beat(client, "ses_1", every_s=0.001):
        await asyncio.wait_for(pulse.three_beats.wait(), 30)
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert ["heartbeat of session ses_1 failed" in record.getMessage() for record in warnings] == [True, True]


@pytest.mark.parametrize("status", [404, 409])
async def test_a_session_that_is_gone_is_beaten_no_more(status: int, caplog: pytest.LogCaptureFixture) -> None:
    pulse = Pulse(status)
    async with pulse.client() as client, beat(client, "ses_1", every_s=0.001):
        await asyncio.wait(beating(), timeout=30)
        assert pulse.beats == 1
    assert "session ses_1 is gone" in caplog.text


async def test_a_block_that_raises_raises_its_own_error_and_the_beat_stops() -> None:
    async with Pulse().client() as client:
        with pytest.raises(RuntimeError, match="the block's"):
            async with beat(client, "ses_1", every_s=60):
                raise RuntimeError("the block's")
    assert beating() == []


async def test_a_cancel_that_comes_while_the_beat_stops_is_not_swallowed() -> None:
    entered = asyncio.Event()

    async def block(client: WhitneyClient) -> str:
        async with beat(client, "ses_1", every_s=60):
            entered.set()
        return "went on as if nothing had been asked"

    async with Pulse().client() as client:
        task = asyncio.create_task(block(client))
        await entered.wait()  # the block is over, and waits for its beat to end
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
