"""Operations: accepted in any order within reach, executed in the order of their seq_ids, each exactly once."""

from __future__ import annotations

import asyncio

from gateway.emulation import adapted, check_operation
from gateway.errors import GatewayError, conflict, invalid, not_found
from gateway.execution import Executor
from gateway.ledger import OperationRecord, RunRecord
from gateway.parts import Parts
from gateway.queues import MAX_AHEAD, QueuedOperation, RunQueue
from gateway.runs import RunRules, not_active
from gateway.validation import ParsedOperation, check_context, digest
from whitney.types import SamplePayload


class OperationRules:
    """What may be posted, and what a repeated post means."""

    def __init__(self, parts: Parts, runs: RunRules, executor: Executor) -> None:
        self._ledger = parts.ledger
        self._scheduler = parts.scheduler
        self._doorbell = parts.doorbell
        self._rules = parts.rules
        self._faults = parts.faults
        self._capabilities = parts.capabilities
        self._runs = runs
        self._executor = executor

    def post(self, run_id: str, sampler_id: str | None, request: ParsedOperation) -> OperationRecord:
        """Queue an operation, or answer the one that this seq_id already is.

        Everything that can refuse it comes before the ledger is written: a refusal does not consume the seq_id.
        """
        run = self._runs.get(run_id)
        body = digest(sampler_id, request.kind, request.payload.model_dump())
        within_reach = request.seq_id <= run.next_seq_id + MAX_AHEAD
        if within_reach and (existing := self._ledger.operations.get(run_id, request.seq_id)) is not None:
            if existing.digest != body:
                raise conflict(
                    "seq_conflict",
                    f"seq_id {request.seq_id} of run {run_id} is taken by another {existing.kind}: it names one body",
                )
            return _kept(existing)
        queue = self._executor.live.get(run_id)
        if queue is None or queue.status != "active":
            raise not_active(run)
        self._check(run, sampler_id, request)
        if not within_reach:
            raise conflict(
                "seq_gap",
                f"seq_id {request.seq_id} is more than {MAX_AHEAD} ahead of {run.next_seq_id}, which run {run_id} "
                "expects next: post that first",
                retryable=True,
                next_seq_id=run.next_seq_id,
            )
        self._accept(queue, sampler_id, request, body)
        return self.get(run_id, request.seq_id)

    def get(self, run_id: str, seq_id: int) -> OperationRecord:
        """One operation; 404 when there is none, 410 `result_expired` when it is no longer known what it answered."""
        record = self._ledger.operations.get(run_id, seq_id)
        if record is None:
            self._runs.get(run_id)
            raise not_found("operation", f"{seq_id} of run {run_id}")
        return _kept(record)

    async def wait(self, run_id: str, seq_id: int, wait_s: float) -> OperationRecord:
        """One operation, when it has ended or `wait_s` is over."""
        record = self.get(run_id, seq_id)
        if wait_s > 0 and not record.terminal:
            await self._doorbell.wait((run_id, seq_id), wait_s)
            record = self.get(run_id, seq_id)
        return record

    def _check(self, run: RunRecord, sampler_id: str | None, request: ParsedOperation) -> None:
        if sampler_id is not None and not self._ledger.operations.has_sampler(run.run_id, sampler_id):
            raise not_found("sampler", sampler_id)
        row = self._capabilities[run.spec.model]
        if request.kind not in row.operations:
            raise invalid("kind", f"{row.model} has no {request.kind}; known: {', '.join(row.operations)}")
        check_context(row, request.payload)
        check_operation(self._rules, run.spec.role, request.kind, request.payload)

    def _accept(self, queue: RunQueue, sampler_id: str | None, request: ParsedOperation, body: str) -> None:
        payload = self._faults.on_acceptance(
            request.payload, run=queue.ordinal, seq_id=request.seq_id, kind=request.kind
        )
        self._ledger.operations.accept(
            queue.run_id,
            request.seq_id,
            kind=request.kind,
            sampler_id=sampler_id,
            digest=body,
            payload=adapted(self._rules, payload),
            next_seq_id=queue.expected_after(request.seq_id),
        )
        sequences = request.payload.num_samples if isinstance(request.payload, SamplePayload) else 1
        now = asyncio.get_running_loop().time()
        queue.accept(QueuedOperation(request.seq_id, request.kind, sampler_id, sequences, now))
        self._scheduler.wake()


def _kept(record: OperationRecord) -> OperationRecord:
    if record.expired:
        raise GatewayError(
            410,
            "result_expired",
            f"operation {record.seq_id} ({record.kind}) of run {record.run_id} succeeded, and its result is no longer "
            "kept: its session was closed longer ago than this server remembers (--keep-days)",
        )
    return record
