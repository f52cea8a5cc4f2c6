"""A client process of the crowd: its flow runs, all at once on one event loop, each retried until it has completed.

Reads `[{"flow_run_id", "algorithm"}, …]` from standard input; started by `benchmarks.crowd`.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any
from uuid import UUID

import orjson
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.flow_engine import run_flow
from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings
from prefect.states import AwaitingRetry

import flows

MOST_ATTEMPTS = 8


async def live(flow_run_id: UUID, algorithm: str) -> None:
    """Run a flow run as a worker does; press Retry as the UI does, until it has completed."""
    async with get_client() as api:
        for _ in range(MOST_ATTEMPTS):
            flow_run = await api.read_flow_run(flow_run_id)
            running: Any = run_flow(flows.FLOWS[algorithm], flow_run=flow_run, return_type="state")
            state: State[Any] = await running
            if state.is_completed():
                return
            await api.set_flow_run_state(flow_run_id, AwaitingRetry(), force=True)


async def main() -> None:
    """All of them; one that cannot be completed is the parent's to find."""
    orders = orjson.loads(sys.stdin.buffer.read())
    await asyncio.gather(*(live(UUID(order["flow_run_id"]), order["algorithm"]) for order in orders))


if __name__ == "__main__":
    with temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
        asyncio.run(main())
