"""Slots of a Prefect global concurrency limit: how many billed sessions a team has open at once.

An attempt takes all it will need in one request, before its first session, and never asks for more: so no two can each
hold what the other waits for. It gives them back once its sessions are closed, never before.

Prefect hands slots out under a lease, which is renewed while the attempt lives. Its id is a label of the sessions: so
whoever closes a dead run's session, the hook or the reaper, frees its slots in the same moment (`tasks.slots`). A lease
that nobody renews ends by itself after `LEASE_S`. That is more than the reaper needs to close the session, for a slot
that came back earlier would stand for two.

Prefect's own `concurrency(...)` keeps the lease's id to itself, and ends whatever runs inside when a lease cannot be
renewed. Here that is a warning: a run that is paid for goes on, at worst one above the limit.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any
from uuid import UUID

from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.objects import ConcurrencyLeaseHolder
from prefect.client.schemas.responses import ConcurrencyLimitWithLeaseResponse
from prefect.exceptions import PrefectHTTPStatusError
from prefect.logging import get_run_logger

from flows.durable.slot_limit import read_limit, require_slots
from flows.durable.telling import warn
from whitney.heartbeat import report_order_to_stop

LEASE_S = 900.0
"""The reaper's interval and silence, five minutes each, its two minutes for closing, and some: see above."""

RENEW_EVERY_S = 60.0

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 10.0
"""Between two requests while all slots are taken. It is no queue: whoever asks first when one comes back has it."""

TELL_EVERY_S = 300.0

LOCKED, GONE = 423, 410
"""What Prefect answers when slots are taken, and when a lease has run out."""


class Slots:
    """The slots of one attempt: none, until its first session is about to be opened."""

    __slots__ = ("_count", "_holder", "_lease", "_limit", "_renewing")

    def __init__(self, limit: str | None, count: int, *, flow_run_id: str) -> None:
        self._limit = limit
        self._count = count
        self._holder = ConcurrencyLeaseHolder(type="flow_run", id=UUID(flow_run_id))
        self._lease: UUID | None = None
        self._renewing: asyncio.Task[None] | None = None

    @property
    def lease(self) -> str | None:
        """The lease's id, for the label of sessions; None without a limit."""
        return str(self._lease) if self._lease else None

    async def require(self) -> None:
        """Refuse a run that could never have its slots: see `require_slots`."""
        if self._limit is not None:
            await require_slots(self._limit, self._count)

    async def take(self) -> None:
        """Take all slots, once; waits as long as they are taken, and can be cancelled meanwhile.

        Raises:
            ConfigError: the limit has been deleted, or made smaller than what is needed.
        """
        if self._limit is None or self._lease is not None:
            return
        began, told_at, pause = time.monotonic(), None, FIRST_PAUSE_S
        async with get_client() as api:
            while (lease := await self._ask(api, self._limit)) is None:
                if told_at is None or time.monotonic() - told_at > TELL_EVERY_S:
                    told_at = time.monotonic()
                    await self._tell(self._limit, told_at - began)
                await asyncio.sleep(pause)
                pause = min(1.5 * pause, LONGEST_PAUSE_S)
        self._hold(lease)
        waited = f" after {time.monotonic() - began:.0f} s" if told_at else ""
        get_run_logger().info("%d of the slots of %s taken%s", self._count, self._limit, waited)

    async def _ask(self, api: PrefectClient, limit: str) -> UUID | None:
        """One request; None where the slots are taken.

        A request that was sent is waited for, even by who is told to stop: slots granted to nobody would be missed
        until their lease ends.
        """
        asking = asyncio.ensure_future(
            api.increment_concurrency_slots_with_lease(
                [limit], self._count, "concurrency", lease_duration=LEASE_S, holder=self._holder
            )
        )
        try:
            answer = await asyncio.shield(asking)
        except PrefectHTTPStatusError as error:
            if error.response.status_code == LOCKED:
                return None
            await require_slots(limit, self._count)
            raise
        except BaseException:
            with suppress(Exception):
                await api.release_concurrency_slots_with_lease(_granted(await asking).lease_id)
            raise
        granted = _granted(answer)
        if not granted.limits:  # as Prefect answers for a limit that does not exist: it has none to respect
            await read_limit(limit)
        return granted.lease_id

    async def _tell(self, limit: str, waited_s: float) -> None:
        found = await read_limit(limit)
        since = f" for {waited_s / 60:.0f} minutes" if waited_s > 60 else ""
        warn(
            f"waiting{since} for {self._count} of the {found.limit} slots of {limit}: {found.active_slots} are taken. "
            "They come back as runs end; `whitney reap` closes what dead ones have left open"
        )

    def _hold(self, lease: UUID) -> None:
        self._lease = lease
        self._renewing = asyncio.create_task(_renew(lease, self._limit or ""), name=f"slots-{lease}")
        self._renewing.add_done_callback(report_order_to_stop)

    async def give_back(self) -> None:
        """Once the sessions are closed. What cannot be given back now comes back when the lease ends."""
        await self.stop_renewing()
        if self._lease is None:
            return
        lease, self._lease = self._lease, None
        try:
            async with get_client() as api:
                await api.release_concurrency_slots_with_lease(lease)
        except Exception as error:  # of whatever kind: the run is not worth less for it
            warn(f"the slots of {self._limit} come back in {LEASE_S / 60:.0f} minutes only: {error}")

    async def stop_renewing(self) -> None:
        """Where a session could not be closed: its slots are kept for as long as the lease lasts."""
        if self._renewing is not None:
            self._renewing.cancel()
            # Not awaited itself: its CancelledError could not be told from one that is meant for the attempt.
            await asyncio.wait([self._renewing])


def _granted(answer: Any) -> ConcurrencyLimitWithLeaseResponse:
    return ConcurrencyLimitWithLeaseResponse.model_validate(answer.json())


async def _renew(lease: UUID, limit: str) -> None:
    """Until it is cancelled, or the lease is lost. A renewal that fails is followed by the next."""
    renewed_at = time.monotonic()
    while True:
        await asyncio.sleep(RENEW_EVERY_S)
        try:
            async with get_client() as api:
                await api.renew_concurrency_lease(lease, LEASE_S)
        except Exception as error:  # of whatever kind: see the top of this file
            gone = isinstance(error, PrefectHTTPStatusError) and error.response.status_code == GONE
            if gone or time.monotonic() - renewed_at > LEASE_S:
                warn(
                    f"this run's slots of {limit} are lost, and it goes on without them, above the limit maybe: "
                    f"{type(error).__name__}. Where the Prefect server was started again and had its leases in memory, "
                    f"they are taken for ever: `prefect gcl update {limit} --active-slots 0` once no run is at work"
                )
                return
        else:
            renewed_at = time.monotonic()
