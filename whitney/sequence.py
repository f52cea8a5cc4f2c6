"""The order of a run's operations, kept on the client's side.

Submitting is synchronous and decides the order. Posts leave in that order, one at a time: the next leaves when the one
before has been accepted, while the waits for their results overlap freely. A seq_id is taken when its post is made, so
an operation that the endpoint refuses takes none. What was already submitted behind a refused operation is not sent
either: an `optim_step` behind a refused `forward_backward` would step on no gradient and look like training.

One post at a time costs a round trip an operation, and keeps every failure simple: never is a later operation sent
while an earlier one's fate is unknown. After any failure the endpoint is asked where the run stands before the next
post: an answer that was lost for good may have been a yes.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Generator
from typing import Any, Protocol

from whitney.errors import (
    ConnectionFailedError,
    OperationCancelledError,
    OperationFailedError,
    OperationNotSentError,
    UnavailableError,
    WhitneyError,
)
from whitney.transport import encode
from whitney.types import Operation, Usage


class Wire(Protocol):
    """What a sequence needs of the client."""

    async def next_seq_id(self, run_id: str) -> int:
        """The seq_id the endpoint expects next."""
        ...

    async def post_operation(self, handle: OperationHandle, seq_id: int) -> None:
        """Post until accepted; raises what the endpoint refused it with."""
        ...

    async def await_operation(self, run_id: str, seq_id: int) -> Operation:
        """Long-poll until the operation is terminal."""
        ...


class OperationHandle:
    """An operation on its way. `await handle` gives its result (a dict in the wire's words).

    The payload is encoded here: what the caller does to it afterwards no longer matters.

    Raises:
        TypeError: something in the payload has no JSON form.
    """

    __slots__ = ("_posted", "_posted_at", "_wire", "encoded", "kind", "operation", "run_id", "sampler_id", "seconds")

    def __init__(self, wire: Wire, run_id: str, kind: str, payload: dict[str, Any], sampler_id: str | None) -> None:
        self._wire = wire
        self._posted: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._posted_at = 0.0
        self.run_id = run_id
        self.kind = kind
        try:
            self.encoded: bytes | None = encode(payload)
        except TypeError as error:
            raise TypeError(f"run {run_id}, {kind}: the payload cannot be written as JSON: {error}") from error
        self.sampler_id = sampler_id
        self.operation: Operation | None = None
        self.seconds = 0.0

    def __repr__(self) -> str:
        return f"OperationHandle(run={self.run_id}, seq_id={self.seq_id}, kind={self.kind})"

    @property
    def seq_id(self) -> int | None:
        """The operation's place in its run, once it has been accepted."""
        done = self._posted.done() and not self._posted.cancelled() and self._posted.exception() is None
        return self._posted.result() if done else None

    @property
    def usage(self) -> Usage:
        """What the operation was billed for; nothing while it has not ended."""
        return self.operation.usage if self.operation else Usage()

    def __await__(self) -> Generator[Any, None, dict[str, Any]]:
        return self.result().__await__()

    async def result(self) -> dict[str, Any]:
        """Wait for the result. May be awaited again, and giving up waiting changes nothing on the wire.

        Raises:
            OperationFailedError: it ran and failed.
            OperationCancelledError: its run was cancelled, or an operation before it failed.
            OperationNotSentError: an operation submitted before it was refused, or the client was closed.
            WhitneyError: it was refused, or the endpoint cannot be reached.
        """
        seq_id = await asyncio.shield(self._posted)
        if self.operation is None:
            self.operation = await self._wire.await_operation(self.run_id, seq_id)
            self.seconds = time.monotonic() - self._posted_at
        operation = self.operation
        if operation.status == "succeeded":
            return operation.result or {}
        kind = OperationFailedError if operation.status == "failed" else OperationCancelledError
        code = operation.error.code if operation.error else operation.status
        reason = operation.error.message if operation.error else "no reason given"
        raise kind(
            f"run {self.run_id}, seq_id {seq_id}, {self.kind} {operation.status}: {code}: {reason}",
            run_id=self.run_id,
            seq_id=seq_id,
            kind=self.kind,
            code=code,
        )

    def accepted(self, seq_id: int) -> None:
        """The endpoint has it; the payload is not needed again."""
        self._posted_at = time.monotonic()
        self.encoded = None
        if not self._posted.done():
            self._posted.set_result(seq_id)

    def refused(self, error: BaseException) -> None:
        """The endpoint does not have it, or nobody can tell."""
        self.encoded = None
        if not self._posted.done():
            self._posted.set_exception(error)
            self._posted.exception()  # seen: a handle that nobody awaits is not an error of its own


class RunSequence:
    """The queue of one run's submitted operations, and the task that posts them."""

    __slots__ = ("_doubt", "_next", "_poster", "_queue", "_run_id", "_wire")

    def __init__(self, wire: Wire, run_id: str, next_seq_id: int | None) -> None:
        self._wire = wire
        self._run_id = run_id
        # None: unknown, and asked for before the next post. It is known only after a post that was accepted.
        self._next = next_seq_id
        # The operation that is being posted stays first until its fate is known.
        self._queue: deque[OperationHandle] = deque()
        self._poster: asyncio.Task[None] | None = None
        # Why nothing may follow: an operation of unknown fate. Sent again it could be a gradient added twice, and
        # passed over one that is missing; only the last saved state is known to be right.
        self._doubt: str | None = None

    @property
    def idle(self) -> bool:
        """Whether nothing is waiting to be posted."""
        return not self._queue

    def submit(self, handle: OperationHandle) -> None:
        """Queue an operation; it is posted when all before it have been accepted."""
        if self._doubt is not None:
            self._not_sent(handle, self._doubt)
            return
        self._queue.append(handle)
        if self._poster is None or self._poster.done():
            self._poster = asyncio.create_task(self._post_all(), name=f"whitney-post-{self._run_id}")
            self._poster.add_done_callback(self._on_poster_end)

    async def _post_all(self) -> None:
        while self._queue:
            handle = self._queue[0]
            try:
                seq_id = await self._post(handle)
            except WhitneyError as error:
                self._queue.popleft()
                handle.refused(error)
                self._drop_queue(f"the {handle.kind} submitted before it could not be: {error}")
            else:
                self._queue.popleft()
                handle.accepted(seq_id)

    async def _post(self, handle: OperationHandle) -> int:
        seq_id, self._next = self._next, None
        if seq_id is None:
            seq_id = await self._wire.next_seq_id(self._run_id)
        try:
            await self._wire.post_operation(handle, seq_id)
        except (ConnectionFailedError, UnavailableError, asyncio.CancelledError):
            self._doubt = (
                f"nobody can tell whether the endpoint has the {handle.kind} of seq_id {seq_id}: cancel the run and go "
                "on in a new one, from the last saved state"
            )
            raise
        self._next = seq_id + 1
        return seq_id

    def _on_poster_end(self, poster: asyncio.Task[None]) -> None:
        """Nobody may wait for ever, however the poster ended: also when it was cancelled before its first step."""
        error = None if poster.cancelled() else poster.exception()
        if not poster.cancelled() and error is None:
            return
        if self._queue:
            handle = self._queue.popleft()
            handle.refused(
                error
                or ConnectionFailedError(
                    f"run {self._run_id}, {handle.kind}: posting was stopped before the endpoint had answered; whether "
                    "it has the operation, the run's next_seq_id tells"
                )
            )
            self._drop_queue(f"posting stopped at the {handle.kind} submitted before it")

    def _drop_queue(self, because: str) -> None:
        while self._queue:
            self._not_sent(self._queue.popleft(), because)

    def _not_sent(self, handle: OperationHandle, because: str) -> None:
        handle.refused(
            OperationNotSentError(
                f"run {self._run_id}, {handle.kind}: not sent, because {because}",
                run_id=self._run_id,
                seq_id=None,
                kind=handle.kind,
                code="not_sent",
            )
        )

    async def aclose(self) -> None:
        """Stop posting; what has not been accepted fails."""
        if self._poster is not None and not self._poster.done():
            self._poster.cancel()
            await asyncio.wait([self._poster])
