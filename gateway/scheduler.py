"""Whose turn it is: one scheduler, in order within a run, round robin across runs."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

from gateway.queues import QueuedOperation, RunQueue


@dataclass(frozen=True, slots=True)
class Gathering:
    """How long a batch of sampler operations is held open for neighbours, and how large it may grow.

    A client posts a cycle's `sample` operations one after another, a few milliseconds apart. Were the first to start
    alone, the model would decode 8 sequences where it could decode 64, at a third of the throughput, and every other
    group would wait for it. So a batch stays open while operations keep arriving: until none has come for `quiet_s`, at
    most `cap_s` after its first, which is little beside the seconds a batch takes. `most_sequences` bounds the
    provider's memory. Other runs' work goes ahead meanwhile.
    """

    quiet_s: float = 0.04
    cap_s: float = 0.3
    most_sequences: int = 128


@dataclass(frozen=True, slots=True)
class Turn:
    """A batch to execute, all of one run."""

    queue: RunQueue
    batch: list[QueuedOperation]


class Scheduler:
    """The live runs' queues. For one event loop."""

    def __init__(self, gathering: Gathering) -> None:
        self._gathering = gathering
        self._rotation: deque[RunQueue] = deque()
        self._changed = asyncio.Event()

    def add(self, queue: RunQueue) -> None:
        """A run has begun; it is served last."""
        self._rotation.append(queue)

    def remove(self, queue: RunQueue) -> None:
        """A run has ended."""
        self._rotation.remove(queue)
        self.wake()

    def wake(self) -> None:
        """Something has been queued or has ended: look again."""
        self._changed.set()

    def next_turn(self, now: float) -> tuple[Turn | None, float | None]:
        """The next batch, taken off its queue; or None and the moment at which a gathering batch will be closed.

        A run that has been served goes to the end of the rotation, so that no run waits for more than one batch of
        each other run.
        """
        closes_at: float | None = None
        for _ in range(len(self._rotation)):
            queue = self._rotation[0]
            self._rotation.rotate(-1)
            batch, open_for_more = queue.batch(self._gathering.most_sequences)
            if not batch:
                continue
            if open_for_more and queue.status == "active" and (closing := self._closes_at(batch)) > now:
                closes_at = closing if closes_at is None else min(closes_at, closing)
                continue
            queue.take(batch)
            return Turn(queue, batch), None
        return None, closes_at

    def _closes_at(self, batch: list[QueuedOperation]) -> float:
        arrivals = [operation.arrived_at for operation in batch]
        return min(max(arrivals) + self._gathering.quiet_s, min(arrivals) + self._gathering.cap_s)

    async def turn(self) -> Turn | None:
        """Wait for the next turn; None when woken for something else, such as a run that has ended."""
        loop = asyncio.get_running_loop()
        while True:
            self._changed.clear()
            turn, closes_at = self.next_turn(loop.time())
            if turn is not None:
                return turn
            try:
                async with asyncio.timeout_at(closes_at):
                    await self._changed.wait()
                    return None
            except TimeoutError:
                continue
