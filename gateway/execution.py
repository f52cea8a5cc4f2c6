"""From the queue to the provider and back into the ledger: write-ahead, execute, record, bill."""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

from gateway.ledger import Ended, FileRecord
from gateway.parts import Parts, logger, report
from gateway.providers.base import Outcome, ProviderLostError, Work
from gateway.queues import QueuedOperation, RunQueue
from gateway.scheduler import Turn
from gateway.storage import measure
from whitney.types import SAMPLER_KINDS, WireErrorDetail

PROVIDER_LOST = WireErrorDetail(
    code="provider_lost",
    message="the process that held the weights ended; open a new run from the last saved state",
)
LEDGER_FAILED = WireErrorDetail(
    code="ledger_failed",
    message="what this operation did could not be recorded (is the disk full?), so its run has ended: make room, and "
    "open a new run from the last saved state",
)

_RETRY_EVERY_S = 1.0
_FILE_KINDS = {"save_state": ("state", "st"), "export_lora": ("artifact", "art")}


def new_id(prefix: str) -> str:
    """An opaque id that cannot be guessed: `run_3f9c…`."""
    return f"{prefix}_{secrets.token_hex(12)}"


@dataclass(frozen=True, slots=True)
class _End:
    """How a run ended; `error` is what becomes of an operation that is on record as running."""

    status: str
    reason: str | None
    error: WireErrorDetail


class Executor:
    """The one place that hands work to the provider, one batch at a time.

    `live` holds the queues of runs that are not terminal. A run's end is decided in `settle`, at once and without
    waiting for the provider; its weights are released between two batches. An end that the ledger could not take is
    owed to it, and offered again until it is on record.
    """

    def __init__(self, parts: Parts) -> None:
        self._ledger = parts.ledger
        self._provider = parts.provider
        self._scheduler = parts.scheduler
        self._doorbell = parts.doorbell
        self._data = parts.data
        self._faults = parts.faults
        self._clock = parts.clock
        self._turn = asyncio.Lock()
        self._ended: list[str] = []
        self._owed: dict[str, _End] = {}
        self.live: dict[str, RunQueue] = {}

    def begin(self, run_id: str) -> None:
        """A run's weights are allocated: serve its operations."""
        self.live[run_id] = queue = RunQueue(run_id, ordinal=self._faults.begin_run())
        self._scheduler.add(queue)

    def provider_turn(self) -> AbstractAsyncContextManager[None]:
        """Held around every call of the provider, so that none overlap."""
        return self._turn

    async def run_forever(self) -> None:
        """Serve turns until cancelled."""
        while True:
            turn = await self._scheduler.turn()
            await self._release_ended()
            if turn is not None:
                await self._guarded(turn)
                await self._release_ended()  # at once, for the next turn may be long in coming

    async def _guarded(self, turn: Turn) -> None:
        """Execute a turn; should recording it fail (a full disk), give up the run and serve the others."""
        try:
            await self._execute(turn)
        except Exception as error:
            report(f"recording operations of {turn.queue.run_id}", error)
            self.fail(turn.queue, LEDGER_FAILED.code)

    async def record_owed_forever(self) -> None:
        """Offer the ledger what it could not take, until cancelled."""
        while True:
            await asyncio.sleep(_RETRY_EVERY_S)
            self.record_owed()

    def record_owed(self) -> None:
        """Record the ends that are owed to the ledger, as far as it takes them, and wake who waits for them."""
        for run_id, end in list(self._owed.items()):
            try:
                with self._ledger.transaction():
                    seq_ids = self._ledger.operations.end_all(run_id, end.error)
                    self._ledger.runs.set_status(run_id, end.status, end.reason)
            except sqlite3.Error:
                return  # said already, where the first recording failed
            del self._owed[run_id]
            for seq_id in seq_ids:
                self._doorbell.ring((run_id, seq_id))

    def settle(self, queue: RunQueue) -> None:
        """End a run whose life cycle has come to its end: drained when finishing, nothing running when cancelling."""
        if queue.status == "finishing" and queue.idle:
            self._close(queue, "finished")
        elif queue.status == "cancelling" and not queue.running:
            self._close(queue, "cancelled")
        self._scheduler.wake()

    def fail(self, queue: RunQueue, reason: str, error: WireErrorDetail = LEDGER_FAILED) -> None:
        """End a run that cannot go on: what is queued is cancelled, what is still running has failed with `error`."""
        self._close(queue, "failed", reason, error)

    def end_unserved(self, run_id: str, reason: str | None) -> None:
        """End a run that the ledger holds for alive and nobody serves: as it is owed, else as cancelled."""
        self._owed.setdefault(run_id, _End("cancelled", reason, LEDGER_FAILED))
        self.record_owed()

    def _close(
        self, queue: RunQueue, status: str, reason: str | None = None, error: WireErrorDetail = LEDGER_FAILED
    ) -> None:
        if self.live.pop(queue.run_id, None) is None:
            return
        queue.status = status
        self._scheduler.remove(queue)
        self._ended.append(queue.run_id)
        self._owed[queue.run_id] = _End(status, reason, error)
        self.record_owed()
        if queue.run_id in self._owed:
            logger.error("the end of %s (%s) is not on record yet: the ledger cannot be written", queue.run_id, status)

    async def _release_ended(self) -> None:
        while self._ended:
            run_id = self._ended.pop()
            try:
                async with self._turn:
                    await self._provider.release_run(run_id)
            except Exception as error:  # the run has ended for its owner; a leak must not stop the others
                report(f"releasing {run_id}", error)

    async def _execute(self, turn: Turn) -> None:
        queue, batch = turn.queue, turn.batch
        files: list[FileRecord] = []
        lost = False
        try:
            works = [self._work(queue.run_id, operation) for operation in batch]
            self._ledger.operations.start(
                queue.run_id, {item.seq_id: work.sampler_id for item, work in zip(batch, works, strict=True)}
            )
            outcomes = await self._outcomes(queue, batch, works)
            endings, files = await self._endings(batch, works, outcomes)
        except ProviderLostError:
            endings = _failed(batch, PROVIDER_LOST)
            lost = queue.run_id in self.live  # else others have seen the loss, and new runs may live already
        except Exception as error:  # one run's failure must not end the others
            report(f"executing {batch[0].kind} of {queue.run_id}", error)
            detail = WireErrorDetail(code="internal", message=f"the gateway failed with {type(error).__name__}")
            endings = _failed(batch, detail)
        try:
            self._record(queue, endings, files)
        except sqlite3.Error:
            # Nobody will ever hear of these, and the disk may be full because of them.
            for record in files:
                self._data.file(record.kind, record.file_id).unlink(missing_ok=True)
            raise
        if lost:
            async with self._turn:
                await self.provider_lost()

    async def _outcomes(
        self, queue: RunQueue, batch: Sequence[QueuedOperation], works: Sequence[Work]
    ) -> Sequence[Outcome]:
        for item in batch:
            await self._faults.on_execution("before", run=queue.ordinal, seq_id=item.seq_id, kind=item.kind)
        async with self._turn:
            if queue.run_id not in self.live:
                raise ProviderLostError  # while this batch waited for its turn
            outcomes = await self._provider.execute(works)
        for item in batch:
            await self._faults.on_execution("after", run=queue.ordinal, seq_id=item.seq_id, kind=item.kind)
        return outcomes

    def _work(self, run_id: str, operation: QueuedOperation) -> Work:
        sampler_id, output = operation.sampler_id, None
        if operation.kind == "save_weights_for_sampler":
            sampler_id = new_id("smp")
        if operation.kind in _FILE_KINDS:
            file_kind, prefix = _FILE_KINDS[operation.kind]
            output = self._data.file(file_kind, new_id(prefix))
        payload = self._ledger.operations.payload(run_id, operation.seq_id)
        return Work(run_id=run_id, kind=operation.kind, payload=payload, sampler_id=sampler_id, output=output)

    async def _endings(
        self, batch: Sequence[QueuedOperation], works: Sequence[Work], outcomes: Sequence[Outcome]
    ) -> tuple[list[Ended], list[FileRecord]]:
        """What to record. Behind a failed operation nothing counts, even where the provider has done it already."""
        endings: list[Ended] = []
        files: list[FileRecord] = []
        for item, work, outcome in zip(batch, works, outcomes, strict=True):
            if endings and endings[-1].status != "succeeded":
                endings.append(Ended(item.seq_id, item.kind, "cancelled"))
            elif outcome.error is not None:
                endings.append(Ended(item.seq_id, item.kind, "failed", error=outcome.error, usage=outcome.usage))
            else:
                result = dict(outcome.result or {})
                if work.output is not None:
                    record = await self._file_record(work, work.output, item.seq_id)
                    files.append(record)
                    result |= _naming(record)
                elif item.kind not in SAMPLER_KINDS and work.sampler_id is not None:
                    result["sampler_id"] = work.sampler_id
                endings.append(Ended(item.seq_id, item.kind, "succeeded", result=result, usage=outcome.usage))
        return endings, files

    async def _file_record(self, work: Work, path: Path, seq_id: int) -> FileRecord:
        run = self._ledger.runs.get(work.run_id)
        if run is None:
            raise LookupError(f"run {work.run_id} is not in the ledger")
        size, sha256 = await asyncio.to_thread(measure, path)
        return FileRecord(
            file_id=path.name.split(".", 1)[0],
            kind=_FILE_KINDS[work.kind][0],
            run_id=work.run_id,
            model=run.spec.model,
            rank=run.spec.lora.rank,
            alpha=run.spec.lora.alpha,
            size_bytes=size,
            sha256=sha256,
            created_at=self._clock(),
            seq_id=seq_id,
        )

    def _record(self, queue: RunQueue, endings: list[Ended], files: list[FileRecord]) -> None:
        with self._ledger.transaction():
            self._ledger.operations.end(queue.run_id, endings)
            for record in files:
                self._ledger.files.add(record)
        queue.running = False
        failed = next((ended for ended in endings if ended.status == "failed"), None)
        if failed is not None:
            self.fail(queue, _reason(failed))
        else:
            self.settle(queue)
        for ended in endings:
            self._doorbell.ring((queue.run_id, ended.seq_id))

    async def provider_lost(self) -> None:
        """Every run lived in the process that is gone. Fail them all, then start the provider again for new ones.

        A provider that does not start answers new runs with its own error; what is on record is still answered.
        """
        logger.error("the provider is gone; %d runs are lost with it", len(self.live))
        for queue in list(self.live.values()):
            self.fail(queue, PROVIDER_LOST.code, PROVIDER_LOST)
        self._ended.clear()
        try:
            await self._provider.stop()
            await self._provider.start()
        except Exception as error:  # the reason is logged, and every later call says it again
            report("the provider does not start again", error)


def _failed(batch: Sequence[QueuedOperation], error: WireErrorDetail) -> list[Ended]:
    """The first operation failed, those behind it never counted."""
    first, *behind = batch
    cancelled = [Ended(item.seq_id, item.kind, "cancelled") for item in behind]
    return [Ended(first.seq_id, first.kind, "failed", error=error), *cancelled]


def _reason(failed: Ended) -> str:
    if failed.error is None or failed.error == PROVIDER_LOST:
        return PROVIDER_LOST.code
    return f"operation_failed: seq_id {failed.seq_id} ({failed.kind}): {failed.error.code}"


def _naming(record: FileRecord) -> dict[str, str]:
    if record.kind == "state":
        return {"state_id": record.file_id}
    return {"artifact_id": record.file_id, "format": "peft"}
