"""When to ask again, and how long to wait before.

Everything this client sends is safe to repeat: creates carry a create_key, operations a seq_id with an identical body,
and the other verbs are idempotent. So a broken connection and a passing refusal are repeated until a deadline, with
exponential back-off and full jitter (each wait is drawn from 0 up to the bound, so that a crowd does not come back at
once). A `Retry-After` is honoured up to a cap; the jitter comes on top, or all who were refused together return so.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

LONGEST_S = 20.0
OWN_LONGEST_S = 1.0
"""Of an endpoint of one's own (`whitney.kept`): it is back within seconds, or never, and serves nobody else."""

RETRYABLE_STATUS = frozenset({408, 425, 429})
SEQ_GAP = "seq_gap"

_MOST_DOUBLINGS = 32  # far above any cap, and far below where a float overflows


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Seconds throughout. `clock`, `now` (Unix time), `uniform` and `sleep` (the async client's) are for tests."""

    deadline_s: float = 300.0
    base_s: float = 0.25
    longest_s: float = LONGEST_S
    retry_after_cap_s: float = 60.0
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], float] = time.time
    uniform: Callable[[float, float], float] = random.uniform
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    def start(self) -> Attempts:
        """Begin one request."""
        return Attempts(self)


class Attempts:
    """The attempts of one request."""

    __slots__ = ("_began", "_policy", "count", "until")

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._began = policy.clock()
        self.count = 0
        self.until = math.inf
        """Unix time of the deadline; known once `wait_s` has been asked."""

    def wait_s(self, retry_after: str | None = None, *, within_s: float = math.inf) -> float | None:
        """How long to wait before asking again; None when the deadline would pass in the meantime.

        `within_s` is a shorter deadline than the policy's, counted from the first attempt too.
        """
        policy = self._policy
        bound = min(policy.longest_s, policy.base_s * 2.0 ** min(self.count, _MOST_DOUBLINGS))
        self.count += 1
        wait = min(_seconds(retry_after, policy.now), policy.retry_after_cap_s) + policy.uniform(0.0, bound)
        until = self._began + min(policy.deadline_s, within_s)
        clock = policy.clock()
        self.until = policy.now() + until - clock
        return wait if clock + wait <= until else None


def retryable(status: int, code: str | None) -> bool:
    """Whether the same request may succeed later. Of the conflicts only `seq_gap`: earlier posts are on their way."""
    return status in RETRYABLE_STATUS or status >= 500 or (status == 409 and code == SEQ_GAP)


def _seconds(retry_after: str | None, now: Callable[[], float]) -> float:
    """Retry-After in seconds; it is either a number of them or an HTTP date. 0 when it is absent or neither."""
    if not retry_after:
        return 0.0
    try:
        seconds = float(retry_after)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(retry_after).timestamp() - now()
        except ValueError:
            return 0.0
    return max(0.0, seconds)
