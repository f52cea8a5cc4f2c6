"""What nobody can need any more goes by age: states, artifacts, and the results of operations.

Without it a data directory grows for ever: each save of a 135M model's run is tens of megabytes, each sampled group
kilobytes in the ledger.
"""

from __future__ import annotations

import asyncio

from gateway.files import FileRules
from gateway.ledger import FileRecord
from gateway.parts import Parts, logger

_EVERY_S = 3600.0
_DAY_S = 86400.0
_AT_ONCE = 32


class Retention:
    """Deletes what is older than `keep_days`; 0 keeps everything.

    Files: those whose session is closed, from which no run of an open session began, and whose flow run has no open
    session either (its current attempt could still go on from them). Results: those of sessions that were closed
    longer ago. Records stay, a few hundred bytes each: they answer what went and when, and what has been executed.
    Space in the ledger is used again; its file does not shrink.
    """

    def __init__(self, parts: Parts, files: FileRules, keep_days: float) -> None:
        self._ledger = parts.ledger
        self._clock = parts.clock
        self._files = files
        self._keep_days = keep_days
        self._due_at = 0.0

    async def sweep_when_due(self) -> None:
        """Sweep, unless the last sweep was less than an hour ago."""
        if self._clock() >= self._due_at:
            self._due_at = self._clock() + _EVERY_S
            await self.sweep()

    async def sweep(self) -> None:
        """Delete what is due, a piece at a time: other requests are answered in between."""
        if self._keep_days <= 0:
            return
        horizon = self._clock() - self._keep_days * _DAY_S
        files = size = results = 0
        # Judged and deleted without a pause in between: a Retry that opens its session during a long sweep finds what
        # it can go on from.
        while records := self._unneeded(horizon):
            self._files.remove(records, "retention")
            files, size = files + len(records), size + sum(record.size_bytes for record in records)
            await asyncio.sleep(0)
        for run_id in self._ledger.operations.runs_with_results_of_before(horizon):
            results += self._ledger.operations.drop_results(run_id)
            await asyncio.sleep(0)
        if files or results:
            logger.info(
                "retention of %g days: deleted %d states and artifacts (%d bytes), and the results of %d operations",
                self._keep_days,
                files,
                size,
                results,
            )

    def _unneeded(self, horizon: float) -> list[FileRecord]:
        """The next few files that may go."""
        unneeded = self._ledger.files.unneeded(horizon)
        return [record for record in unneeded if record.file_id not in self._files.in_use][:_AT_ONCE]
