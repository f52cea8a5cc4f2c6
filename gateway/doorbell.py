"""Waiting for something to change, without looking again and again."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Hashable


class Doorbell:
    """Long polls wait here by key; whoever changes the thing rings. For one event loop."""

    def __init__(self) -> None:
        self._waiting: defaultdict[Hashable, set[asyncio.Future[None]]] = defaultdict(set)
        self._closed = False

    async def wait(self, key: Hashable, timeout_s: float) -> None:
        """Return when `key` is rung, when the time is over, or at once when the house is closed."""
        if self._closed:
            return
        ring = asyncio.get_running_loop().create_future()
        self._waiting[key].add(ring)
        try:
            await asyncio.wait([ring], timeout=timeout_s)
        finally:
            ring.cancel()
            self._waiting[key].discard(ring)
            if not self._waiting[key]:
                del self._waiting[key]

    def ring(self, key: Hashable) -> None:
        """Wake everybody who waits for `key`."""
        for ring in self._waiting.get(key, ()):
            if not ring.done():
                ring.set_result(None)

    def close(self) -> None:
        """Wake everybody, and let nobody wait any more: a gateway that stops does not hold its callers."""
        self._closed = True
        for key in list(self._waiting):
            self.ring(key)
