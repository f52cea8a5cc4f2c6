"""The gateway's side of the embedded engine: a subprocess, asked one thing at a time."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gateway.providers.base import Outcome, ProviderLostError, RunSpec, Work
from gateway.providers.local.ipc import frame, outcome_from, receive_frame
from gateway.providers.local.options import EngineOptions
from whitney.types import CapabilityRow, WireErrorDetail

logger = logging.getLogger("gateway.engine")

_STOP_SECONDS = 10.0
_LINE_BYTES = 1 << 20  # a traceback's longest line


class LocalProvider:
    """Trains and samples LoRA adapters on this machine's CPU, in a process of its own.

    A process, because torch's threads and the event loop would starve each other, and because a crash of the one must
    not take the gateway along.

    Args:
        options: what it serves, and how.
        scratch: a folder for snapshots that do not fit into memory, of this provider alone: emptied at every start, for
            a process that was killed leaves its files. Without one they go where temporary files go.
    """

    def __init__(self, options: EngineOptions | None = None, scratch: Path | None = None) -> None:
        self._options = options or EngineOptions()
        self._scratch = scratch
        self._engine: _EngineProcess | None = None
        self._rows: list[CapabilityRow] = []

    @property
    def batches_samplers(self) -> bool:
        """Not in deterministic mode: a bigger batch may round the last bit differently."""
        return not self._options.deterministic

    async def start(self) -> None:
        """Start the engine's process, which resolves the models it serves; may be called again after a loss.

        Raises:
            ValueError: a model cannot be had, or the options make no sense.
            ProviderLostError: the process ended at once.
        """
        await self.stop()
        if self._scratch is not None:
            await asyncio.to_thread(_empty, self._scratch)
        self._engine = await _EngineProcess.spawn(self._options.thread_count, self._scratch)
        try:
            rows = await self._engine.call("start", asdict(self._options))
        except BaseException:
            await self.stop()
            raise
        self._rows = [CapabilityRow.model_validate(row) for row in rows]

    async def stop(self) -> None:
        """End the process; idempotent."""
        engine, self._engine = self._engine, None
        if engine is not None:
            await engine.stop()

    def capabilities(self) -> list[CapabilityRow]:
        """One row a model; empty before `start`."""
        return list(self._rows)

    async def create_run(self, spec: RunSpec) -> None:
        """Allocate a run's weights.

        Raises:
            ValueError: `spec` cannot be met; a sentence for the user.
            ProviderLostError: the process is gone.
        """
        await self._call("create_run", asdict(spec))

    async def execute(self, batch: Sequence[Work]) -> list[Outcome]:
        """Execute one item of any kind, or several sampler items of one kind on one snapshot.

        Raises:
            ProviderLostError: the process is gone.
        """
        # Not asdict: it would walk a payload of a million numbers one by one.
        records = [
            {
                "run_id": work.run_id,
                "kind": work.kind,
                "payload": work.payload,
                "sampler_id": work.sampler_id,
                "output": work.output,
            }
            for work in batch
        ]
        try:
            answers = await self._call("execute", {"batch": records})
        except RuntimeError as error:  # a bug in the engine; its process and the other runs live on
            return [Outcome(error=WireErrorDetail(code="engine_error", message=str(error)))] * len(batch)
        return [outcome_from(record) for record in answers]

    async def release_run(self, run_id: str) -> None:
        """Forget a run and its snapshots; idempotent, also when the process is gone."""
        if self._engine is not None and self._engine.alive:
            await self._call("release_run", {"run_id": run_id})

    @property
    def process_id(self) -> int | None:
        """The engine's process, for diagnostics."""
        return self._engine.process.pid if self._engine else None

    async def _call(self, method: str, params: dict[str, Any]) -> Any:
        if self._engine is None:
            raise ProviderLostError("the engine is not running")
        return await self._engine.call(method, params)


def _empty(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)


@dataclass
class _EngineProcess:
    """One life of the process. Answers are matched by id, so that a cancelled caller leaves no answer to the next."""

    process: asyncio.subprocess.Process
    _waiting: dict[int, asyncio.Future[Any]] = field(default_factory=dict)
    _ids: itertools.count[int] = field(default_factory=itertools.count)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _ended: bool = False

    @classmethod
    async def spawn(cls, threads: int, scratch: Path | None) -> _EngineProcess:
        # Both must be in place before torch is loaded. Threads that spin while they wait take the core a busy neighbour
        # (Prefect's server, a flow) needs, and are then waited for themselves: training becomes four times slower.
        environment = os.environ | {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "PASSIVE"}
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # see `gateway.launch`
            "-m",
            "gateway.providers.local.worker",
            *([] if scratch is None else [str(scratch)]),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
            limit=_LINE_BYTES,
        )
        engine = cls(process)
        engine._tasks = [asyncio.create_task(engine._receive()), asyncio.create_task(engine._pass_on_log())]
        return engine

    @property
    def alive(self) -> bool:
        return not self._ended

    async def call(self, method: str, params: dict[str, Any]) -> Any:
        if self._ended:
            raise self._lost()
        number = next(self._ids)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(frame({"id": number, "method": method, "params": params}))
            await self.process.stdin.drain()
            return await answer
        except ConnectionError as error:
            raise self._lost() from error
        finally:
            self._waiting.pop(number, None)

    async def stop(self) -> None:
        """Close stdin, which ends the process after what it is doing; kill it if that takes long."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            await asyncio.wait_for(self.process.wait(), _STOP_SECONDS)
        except TimeoutError:
            self.process.kill()
            await self.process.wait()
        await asyncio.gather(*self._tasks)

    async def _receive(self) -> None:
        assert self.process.stdout is not None
        try:
            while True:
                self._settle(await receive_frame(self.process.stdout))
        except asyncio.IncompleteReadError:
            pass  # the process has closed its end
        await self.process.wait()
        self._ended = True
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(self._lost())

    def _settle(self, message: dict[str, Any]) -> None:
        answer = self._waiting.get(message["id"])
        if answer is None or answer.done():
            return  # its caller was cancelled
        if "refused" in message:
            answer.set_exception(ValueError(message["refused"]))
        elif "failed" in message:
            answer.set_exception(RuntimeError(message["failed"]))
        else:
            answer.set_result(message["result"])

    async def _pass_on_log(self) -> None:
        assert self.process.stderr is not None
        while line := await self.process.stderr.readline():
            level, _, text = line.decode("utf-8", "replace").rstrip().partition(" ")
            known = logging.getLevelNamesMapping().get(level)
            if known is None:  # not a record of ours: a library's own words, or a traceback
                logger.warning("%s", line.decode("utf-8", "replace").rstrip())
            else:
                logger.log(known, "%s", text)

    def _lost(self) -> ProviderLostError:
        code = self.process.returncode
        return ProviderLostError(f"the engine's process has ended (exit code {code}); its runs and samplers are lost")
