"""The gateway without its HTTP: ledger, provider, scheduler and rules put together, started and stopped."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from gateway.emulation import ProviderRules
from gateway.execution import Executor
from gateway.faults import Faults
from gateway.files import FileRules
from gateway.ledger import Ledger
from gateway.operations import OperationRules
from gateway.parts import Parts, logger, report
from gateway.providers.base import Provider
from gateway.retention import Retention
from gateway.runs import RunRules
from gateway.scheduler import Gathering, Scheduler
from gateway.sessions import SessionRules
from gateway.storage import DataDirectory
from whitney.types import CapabilityRow

_SWEEP_EVERY_S = 5.0


class Gateway:
    """A Whitney server: `async with Gateway(…) as gateway`, then `.sessions`, `.runs`, `.operations`, `.files`.

    Args:
        data: an opened data directory.
        provider: what executes the operations.
        rules: what is accepted, and the provider's name on the wire.
        reduction: "mean" emulates a backend whose losses are means over a request's trained tokens.
        session_ttl_s: seconds without a heartbeat after which a session is cancelled and closed; 0: never.
        keep_days: days after which what nobody can need any more is deleted; 0: never. See `gateway.retention`.
        clock: Unix time; tests hand in their own.
    """

    def __init__(
        self,
        data: DataDirectory,
        provider: Provider,
        rules: ProviderRules,
        *,
        reduction: str = "sum",
        session_ttl_s: float = 1800.0,
        keep_days: float = 30.0,
        gathering: Gathering | None = None,
        faults: Faults | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        one_by_one = Gathering(quiet_s=0.0, cap_s=0.0, most_sequences=1)
        self._parts = Parts(
            data=data,
            ledger=Ledger(data.ledger),
            provider=provider,
            rules=rules,
            scheduler=Scheduler((gathering or Gathering()) if provider.batches_samplers else one_by_one),
            faults=faults if faults is not None else Faults(),
            reduction=reduction,
            session_ttl_s=session_ttl_s,
            clock=clock,
        )
        self._executor = Executor(self._parts)
        self.files = FileRules(self._parts)
        self.runs = RunRules(self._parts, self._executor, self.files)
        self.sessions = SessionRules(self._parts, self.runs)
        self.operations = OperationRules(self._parts, self.runs, self._executor)
        self.retention = Retention(self._parts, self.files, keep_days)
        self._background: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        """Mark what a former process lost, start the provider, begin to serve."""
        parts = self._parts
        try:
            if lost := parts.ledger.recover():
                logger.warning("%d runs lived in the gateway that stopped; they are failed with run_lost", lost)
            parts.data.sweep(parts.ledger.files.present())
            await parts.provider.start()
        except BaseException:
            parts.ledger.close()
            raise
        for row in parts.provider.capabilities():
            emulated = row.emulated or parts.rules.emulated
            own = {"provider": parts.rules.name, "loss_reduction": parts.reduction, "emulated": emulated}
            parts.capabilities[row.model] = row.model_copy(update=own)
        self._background = [
            asyncio.create_task(self._executor.run_forever()),
            asyncio.create_task(self._executor.record_owed_forever()),
            asyncio.create_task(self._sweep_forever()),
        ]
        for task in self._background:
            task.add_done_callback(_report_end)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop. Runs that are not terminal are lost with the provider; the next start says so in the ledger."""
        self.stop_waiting()
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        await self.runs.stop()
        with suppress(Exception):  # a provider that is gone already cannot be stopped
            await self._parts.provider.stop()
        self._parts.ledger.close()

    @property
    def faults(self) -> Faults:
        """The scripted faults still to come."""
        return self._parts.faults

    def capabilities(self) -> list[CapabilityRow]:
        """One row a model."""
        return list(self._parts.capabilities.values())

    def stop_waiting(self) -> None:
        """Answer every long poll now: a gateway that is told to stop does not hold its callers."""
        self._parts.doorbell.close()

    async def _sweep_forever(self) -> None:
        ttl_s = self._parts.session_ttl_s
        pause_s = min(_SWEEP_EVERY_S, max(0.05, ttl_s / 4)) if ttl_s > 0 else _SWEEP_EVERY_S
        while True:
            await asyncio.sleep(pause_s)
            try:
                self.sessions.expire()
                await self.retention.sweep_when_due()
            except (sqlite3.Error, OSError) as error:  # a full disk: the next sweep tries again
                report("sweeping", error)


def _report_end(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        report("the gateway cannot go on", error)
