"""A Whitney run in a flow's hands: the client, the ids, and what it has cost so far.

Everything here has `__slots__` and no `__dict__`. Prefect walks plain containers element by element (a million
numbers take ten seconds) and stores an ordinary object's `__dict__` in its database; of these it stores the name only.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from typing import Any, Protocol

from whitney.client import WhitneyClient
from whitney.sequence import OperationHandle
from whitney.types import Usage


class Opaque:
    """A value that passes through Prefect unread: batches, groups, whatever holds many numbers."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class Completed:
    """The result of one operation, in the wire's words."""

    __slots__ = ("result",)

    def __init__(self, result: dict[str, Any]) -> None:
        self.result = result


class Gate(Protocol):
    """What is asked before an operation is posted, and told what it was billed for."""

    def admit(self, kind: str, payload: dict[str, Any]) -> Usage:
        """Let an operation through: the most that it may be billed for. Whatever this raises is the operation's end."""
        ...

    def settle(self, most: Usage, billed: Usage) -> None:
        """An operation that was let through has ended."""
        ...


class Open:
    """A gate that lets everything through."""

    __slots__ = ()

    def admit(self, kind: str, payload: dict[str, Any]) -> Usage:
        """Nothing is counted."""
        return Usage()

    def settle(self, most: Usage, billed: Usage) -> None:
        """Nothing to settle."""


class Meter:
    """What operations cost: how many of each kind, tokens, and seconds from post to answer; behind a gate."""

    __slots__ = ("_held", "gate", "operations", "seconds", "tokens")

    def __init__(self, gate: Gate | None = None) -> None:
        self.gate = gate or Open()
        self._held: dict[OperationHandle, Usage] = {}
        self.operations: Counter[str] = Counter()
        self.tokens: Counter[str] = Counter()
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def hold(self, handle: OperationHandle, most: Usage) -> None:
        """Remember of a posted operation what the gate has let through."""
        self._held[handle] = most

    def settle(self, handle: OperationHandle) -> None:
        """Tell the gate what an operation was billed for."""
        if (most := self._held.pop(handle, None)) is not None:
            self.gate.settle(most, handle.usage)

    def count(self, kind: str, usage: Usage, seconds: float) -> None:
        """Add one operation."""
        self.operations[kind] += 1
        self.seconds[kind] += seconds
        self.tokens.update(prefill=usage.prefill_tokens, sampled=usage.sampled_tokens, trained=usage.trained_tokens)

    def flat(self) -> dict[str, float]:
        """As metrics: `operations/<kind>`, `tokens/<prefill|sampled|trained>`, `seconds/<kind>`."""
        return {
            **{f"operations/{kind}": count for kind, count in sorted(self.operations.items())},
            **{f"tokens/{name}": count for name, count in sorted(self.tokens.items())},
            **{f"seconds/{kind}": round(value, 3) for kind, value in sorted(self.seconds.items())},
        }

    def take(self) -> dict[str, float]:
        """What has been counted since the last call, as metrics."""
        taken = self.flat()
        self.operations, self.tokens, self.seconds = Counter(), Counter(), defaultdict(float)
        return taken


class Run:
    """A run — policy, teacher, reference or critic — with the snapshot of its current weights once one has been taken.

    Runs of one flow may share a `meter`: what a cycle costs is what all of them cost.
    """

    __slots__ = ("client", "meter", "run_id", "session_id", "snapshot", "state_id")

    def __init__(
        self,
        client: WhitneyClient,
        *,
        session_id: str,
        run_id: str,
        state_id: str | None = None,
        meter: Meter | None = None,
    ) -> None:
        self.client = client
        self.session_id = session_id
        self.run_id = run_id
        self.state_id = state_id
        self.snapshot: asyncio.Future[Completed] | None = None
        self.meter = meter or Meter()

    def count(self, kind: str, result: dict[str, Any], handle: OperationHandle) -> Completed:
        """Put a finished operation on the meter."""
        self.meter.settle(handle)
        self.meter.count(kind, handle.usage, handle.seconds)
        return Completed(result)
