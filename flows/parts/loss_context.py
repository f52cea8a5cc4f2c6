"""`ctx` of a user's `build_loss`: ids, and a client whose every call is an ordered, billed, visible operation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Any

from tasks.operations import run_operation, sampler_operation
from tasks.run import Run
from whitney.types import SAMPLER_KINDS

# The loop takes the step and saves: a second step in the middle of a cycle would leave the sampler's weights behind.
ALLOWED_RUN_KINDS = ("forward", "forward_backward")


@dataclass(frozen=True, slots=True)
class LossContext:
    """What `build_loss` is given beside the sample: the live client, and the ids its calls need."""

    client: OperationClient | BlockingClient
    run_id: str
    sampler_id: str
    provider: str
    teacher_run_id: str | None = None
    teacher_sampler_id: str | None = None


class OperationClient:
    """`ctx.client` of an async `build_loss`: each call is an ordered operation, its answer the operation's result."""

    __slots__ = ("_runs",)

    def __init__(self, runs: Sequence[Run]) -> None:
        self._runs = {run.run_id: run for run in runs}

    async def run_operation(self, run_id: str, kind: str, payload: dict[str, Any]) -> dict[str, Any]:
        """`forward` or `forward_backward` on one of the flow's runs.

        Raises:
            ValueError: another kind, or a run that is not the flow's.
        """
        if kind not in ALLOWED_RUN_KINDS:
            raise ValueError(f"build_loss may ask for {', '.join(ALLOWED_RUN_KINDS)}, not {kind!r}: the loop does that")
        return (await run_operation(self._run(run_id), kind, payload, f"build_loss {kind}")).result

    async def sampler_operation(
        self, run_id: str, sampler_id: str, kind: str, payload: dict[str, Any]
    ) -> dict[str, Any]:
        """`sample` or `logprobs` on a snapshot of one of the flow's runs.

        Raises:
            ValueError: as `run_operation`.
        """
        if kind not in SAMPLER_KINDS:
            raise ValueError(f"{kind!r} is no operation of a sampler; those are {', '.join(SAMPLER_KINDS)}")
        return (await sampler_operation(self._run(run_id), sampler_id, kind, payload, f"build_loss {kind}")).result

    def _run(self, run_id: str) -> Run:
        if run_id not in self._runs:
            raise ValueError(f"run {run_id!r} is not this flow's; ctx.run_id and ctx.teacher_run_id are")
        return self._runs[run_id]


class BlockingClient:
    """The same for a synchronous `build_loss`, to be called from its thread."""

    __slots__ = ("_client", "_loop")

    def __init__(self, client: OperationClient, loop: asyncio.AbstractEventLoop) -> None:
        self._client = client
        self._loop = loop

    def run_operation(self, run_id: str, kind: str, payload: dict[str, Any]) -> dict[str, Any]:
        """As `OperationClient.run_operation`; waits for the answer."""
        return self._wait(self._client.run_operation(run_id, kind, payload))

    def sampler_operation(self, run_id: str, sampler_id: str, kind: str, payload: dict[str, Any]) -> dict[str, Any]:
        """As `OperationClient.sampler_operation`; waits for the answer."""
        return self._wait(self._client.sampler_operation(run_id, sampler_id, kind, payload))

    def _wait(self, asked: Awaitable[dict[str, Any]]) -> dict[str, Any]:
        async def answer() -> dict[str, Any]:
            return await asked

        return asyncio.run_coroutine_threadsafe(answer(), self._loop).result()
