"""Runs: allocated once for a create_key, ended by finish, cancel or a failed operation."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

from gateway.emulation import check_role
from gateway.errors import GatewayError, conflict, invalid, key_conflict, not_found, shorten
from gateway.execution import Executor, new_id
from gateway.files import FileRules
from gateway.ledger import FileRecord, RunRecord, SessionRecord
from gateway.parts import Parts
from gateway.providers.base import ProviderLostError, RunSpec
from gateway.validation import digest
from whitney.types import CreateRun, Initial


class RunRules:
    """The life cycle of runs: `active → finishing → finished`, `active → cancelling → cancelled`, `failed`."""

    def __init__(self, parts: Parts, executor: Executor, files: FileRules) -> None:
        self._ledger = parts.ledger
        self._provider = parts.provider
        self._doorbell = parts.doorbell
        self._rules = parts.rules
        self._capabilities = parts.capabilities
        self._reduction = parts.reduction
        self._clock = parts.clock
        self._executor = executor
        self._files = files
        self._allocating: dict[tuple[str, str], asyncio.Task[RunRecord]] = {}

    async def create(self, session: SessionRecord, request: CreateRun) -> RunRecord:
        """The session's run of this create_key, allocated if there is none.

        Weights are allocated between two batches, so the answer may take as long as the batch that executes now.
        """
        body = digest(request.model_dump())
        key = (session.session_id, request.create_key)
        run = self._ledger.runs.by_key(*key)
        if run is None:
            # A second post of the body while the first still allocates waits for the same run. Shielded: a caller who
            # hangs up must not stop an allocation half-way, he will ask again.
            task = self._allocating.get(key)
            if task is None:
                self._require_open(session.session_id)
                task = asyncio.create_task(self._allocate(session.session_id, body, request, self._spec(request)))
                self._allocating[key] = task
                task.add_done_callback(lambda _: self._allocating.pop(key, None))
            run = await asyncio.shield(task)
        if run.digest != body:
            raise key_conflict("run", run.run_id)
        return run

    def get(self, run_id: str) -> RunRecord:
        """One run, or 404."""
        record = self._ledger.runs.get(run_id)
        if record is None:
            raise not_found("run", run_id)
        return record

    def on_the_wire(self, run: RunRecord) -> dict[str, object]:
        """The wire's `Run`, with its bill."""
        return {
            "run_id": run.run_id,
            "status": run.status,
            "next_seq_id": run.next_seq_id,
            "usage": self._ledger.runs.usage(run.run_id).model_dump(),
            "reason": run.reason,
        }

    def finish(self, run_id: str) -> RunRecord:
        """Accept nothing more, execute what is queued, then be finished. Idempotent; 409 where that cannot be."""
        run = self.get(run_id)
        if run.status in ("cancelling", "cancelled", "failed"):
            raise not_active(run)
        queue = self._executor.live.get(run_id)
        if queue is not None and queue.status == "active":
            if queue.missing is not None:
                raise conflict(
                    "seq_gap",
                    f"run {run_id} holds operations behind seq_id {queue.missing}, which was never posted: "
                    "post it, or cancel the run",
                )
            self._ledger.runs.set_status(run_id, "finishing")
            queue.status = "finishing"
            self._executor.settle(queue)
        return self.get(run_id)

    def cancel(self, run_id: str, reason: str | None = None) -> RunRecord:
        """Cancel what is queued, let a running operation end, then be cancelled. Idempotent.

        A run that is terminal stays what it is: whoever cleans up need not know how a run ended.
        """
        run = self.get(run_id)
        queue = self._executor.live.get(run_id)
        if queue is None and not run.terminal:
            self._executor.end_unserved(run_id, reason)
        elif queue is not None and queue.status != "cancelling":
            with self._ledger.transaction():
                cancelled = self._ledger.operations.cancel_queued(run_id)
                self._ledger.runs.set_status(run_id, "cancelling", reason)
            queue.waiting.clear()
            for seq_id in cancelled:
                self._doorbell.ring((run_id, seq_id))
            queue.status = "cancelling"
            self._executor.settle(queue)
        return self.get(run_id)

    async def stop(self) -> None:
        """Give up allocations under way."""
        tasks = list(self._allocating.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _spec(self, request: CreateRun) -> RunSpec:
        if request.provider != self._rules.name:
            raise invalid("provider", f"{shorten(request.provider)!r} is not served here; known: {self._rules.name}")
        row = self._capabilities.get(request.model)
        if row is None:
            known = ", ".join(sorted(self._capabilities))
            raise invalid("model", f"{shorten(request.model)!r} is not served here; known: {known}")
        if request.lora.rank > row.max_lora_rank:
            raise invalid("lora.rank", f"{request.lora.rank} is over {row.model}'s maximum of {row.max_lora_rank}")
        check_role(self._rules, request.role)
        return RunSpec(
            run_id=new_id("run"),
            model=request.model,
            role=request.role,
            rank=request.lora.rank,
            alpha=request.lora.alpha,
            seed=request.lora.seed,
            initial=None if request.initial is None else self._initial(request, request.initial),
            with_optimizer=request.with_optimizer,
            reduction=self._reduction,
        )

    def _initial(self, request: CreateRun, initial: Initial) -> Path:
        kind, file_id = _named(initial)
        record, path = self._files.get(kind, file_id)
        self._check_initial_role(request.role, kind, record)
        wanted = {"model": request.model, "lora.rank": request.lora.rank, "lora.alpha": request.lora.alpha}
        found = {"model": record.model, "lora.rank": record.rank, "lora.alpha": record.alpha}
        for name, value in wanted.items():
            if found[name] != value:
                raise invalid(
                    f"initial.{kind}_id",
                    f"{kind} {record.file_id} has {name} {found[name]}, the run asks for {value}: they must be equal",
                )
        return path

    def _check_initial_role(self, role: str, kind: str, record: FileRecord) -> None:
        """A state is of its run's role; a policy's adapter serves a critic as well, which then has a new value head."""
        run = self._ledger.runs.get(record.run_id)
        own = run.spec.role if run is not None else role
        if own != role and not (kind == "artifact" and role == "critic"):
            raise invalid(
                f"initial.{kind}_id", f"{kind} {record.file_id} is of a {own} run, the run asks for the role {role}"
            )

    async def _allocate(self, session_id: str, body: str, request: CreateRun, spec: RunSpec) -> RunRecord:
        if request.initial is None:
            return await self._allocated(session_id, body, request, spec)
        kind, file_id = _named(request.initial)
        with self._files.using(file_id):
            await self._files.verify(kind, file_id)
            return await self._allocated(session_id, body, request, spec)

    async def _allocated(self, session_id: str, body: str, request: CreateRun, spec: RunSpec) -> RunRecord:
        async with self._executor.provider_turn():
            try:
                await self._provider.create_run(spec)
            except ValueError as error:
                raise GatewayError(422, "invalid_request", str(error)) from error
            except ProviderLostError:
                await self._executor.provider_lost()
                message = "the process that holds the weights ended and has been started again"
                raise GatewayError(503, "provider_lost", message, retryable=True) from None
            try:
                self._require_open(session_id)  # its owner may have closed it meanwhile
                self._ledger.runs.add(spec.run_id, session_id, body, request, self._clock())
            except (GatewayError, sqlite3.Error):
                await self._provider.release_run(spec.run_id)
                raise
        self._executor.begin(spec.run_id)
        return self.get(spec.run_id)

    def _require_open(self, session_id: str) -> None:
        session = self._ledger.sessions.get(session_id)
        if session is None:
            raise not_found("session", session_id)
        if session.status != "open":
            raise session_closed(session)


def _named(initial: Initial) -> tuple[str, str]:
    """Kind and id of the file a run starts from."""
    return ("artifact" if initial.state_id is None else "state"), initial.state_id or initial.artifact_id or ""


def session_closed(session: SessionRecord) -> GatewayError:
    """409: nothing can be done in a closed session."""
    because = f" ({session.reason})" if session.reason else ""
    return conflict("session_closed", f"session {session.session_id} is closed{because}: open a new one")


def not_active(run: RunRecord) -> GatewayError:
    """409: the run takes no operations any more."""
    because = f" ({run.reason})" if run.reason else ""
    # Active on record, yet nobody serves it: the ledger could not take its end.
    status = "ended, which could not be recorded yet" if run.status == "active" else run.status
    return conflict("run_not_active", f"run {run.run_id} is {status}{because}", status=run.status, reason=run.reason)
