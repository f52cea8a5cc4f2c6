"""When to ask again, and how long to wait before.

Everything this client sends is safe to repeat: creates carry a create_key, operations a seq_id with an identical body,
and the other verbs are idempotent. So a broken connection and a passing refusal are repeated until a deadline, with
exponential back-off and full jitter (each wait is drawn from 0 up to the bound, so that a crowd does not come back at
once). A `Retry-After` is honoured up to a cap.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

RETRYABLE_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})
SEQ_GAP = "seq_gap"


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Seconds throughout. `clock` and `uniform` are there for tests."""

    deadline_s: float = 300.0
    base_s: float = 0.25
    longest_s: float = 20.0
    retry_after_cap_s: float = 60.0
    clock: Callable[[], float] = time.monotonic
    uniform: Callable[[float, float], float] = field(default=random.uniform)

    def start(self) -> Attempts:
        """Begin one request."""
        return Attempts(self)


class Attempts:
    """The attempts of one request."""

    __slots__ = ("_count", "_policy", "_until")

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._until = policy.clock() + policy.deadline_s
        self._count = 0

    def wait_s(self, retry_after: str | None = None) -> float | None:
        """How long to wait before asking again; None when the deadline would pass in the meantime."""
        policy = self._policy
        bound = min(policy.longest_s, policy.base_s * 2.0**self._count)
        self._count += 1
        asked = _seconds(retry_after)
        wait = policy.uniform(0.0, bound) if asked is None else min(asked, policy.retry_after_cap_s)
        return wait if policy.clock() + wait <= self._until else None


def retryable(status: int, code: str | None) -> bool:
    """Whether the same request may succeed later. Of the conflicts only `seq_gap`: earlier posts are on their way."""
    return status in RETRYABLE_STATUS or (status == 409 and code == SEQ_GAP)


def _seconds(retry_after: str | None) -> float | None:
    """Retry-After in seconds; it is either a number of them or an HTTP date."""
    if not retry_after:
        return None
    try:
        return max(0.0, float(retry_after))
    except ValueError:
        pass
    try:
        return max(0.0, (parsedate_to_datetime(retry_after) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return None
