"""A pool of processes that judge completions, in which nothing a function does can stop the batch.

Every job has a hard limit of wall time. A process that exceeds it is killed with all its children and replaced; one
that dies by itself is replaced too. The pool is asynchronous, so that cancelling a flow ends its workers at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import orjson
from pydantic import SecretStr

from tasks.completion import Completion
from tasks.python_process import command, environment
from tasks.redaction import redact
from tasks.reward_worker import LENGTH

Wants = Literal["score", "text"]

IN_VAIN = "gave no answer within"
"""How the reason of a call begins that was waited for in vain."""

LOAD_TIMEOUT_S = 120.0
"""Importing a grader's module may pull in a computer algebra system; that is not the completion's fault."""


@dataclass(frozen=True, slots=True)
class Job:
    """One call of one function on one completion."""

    function: str
    arguments: Mapping[str, Any]
    completion: Completion


@dataclass(frozen=True, slots=True)
class Failed:
    """A call that gave nothing, and why: a reason to be counted, and what an error said, which may be anything."""

    reason: str
    words: str = ""


class RewardPool:
    """At most `workers` processes, each started when first needed.

    Use it as an asynchronous context, or call `close`. One pool may serve many batches, at the same time too. `keys`
    are taken out of what functions say, as the environment's is: it ends up in files, and in a teacher's prompt.

    Raises:
        ValueError: fewer than one worker, or a limit that is not above 0.
    """

    __slots__ = ("_idle", "_keys", "_workers", "timeout_s")

    def __init__(self, *, workers: int = 2, timeout_s: float = 30.0, keys: Sequence[SecretStr] = ()) -> None:
        if workers < 1 or timeout_s <= 0:
            raise ValueError(f"workers is {workers} and timeout_s is {timeout_s}: at least 1 and above 0 are needed")
        self.timeout_s = timeout_s
        self._keys = tuple(keys)
        self._workers = [_Worker() for _ in range(workers)]
        self._idle: asyncio.LifoQueue[_Worker] = asyncio.LifoQueue()  # the last used is warm: start no more than needed
        for worker in self._workers:
            self._idle.put_nowait(worker)

    async def run(self, jobs: Sequence[Job]) -> list[float | Failed]:
        """Call every job: its score, or the reason why there is none, in the order of the jobs."""
        answers = await self._all(jobs, "score")
        return [float(answer["score"]) if "score" in answer else _failed(answer) for answer in answers]

    async def texts(self, jobs: Sequence[Job]) -> list[str | Failed | None]:
        """Call every job: what its function has to say, which may be nothing, in the order of the jobs."""
        answers = await self._all(jobs, "text")
        return [answer["text"] if "text" in answer else _failed(answer) for answer in answers]

    async def close(self) -> None:
        """End every process; idempotent."""
        await asyncio.gather(*(worker.kill() for worker in self._workers))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _all(self, jobs: Sequence[Job], wants: Wants) -> list[dict[str, Any]]:
        async with asyncio.TaskGroup() as group:
            calls = [group.create_task(self._one(job, wants)) for job in jobs]
        return [call.result() for call in calls]

    async def _one(self, job: Job, wants: Wants) -> dict[str, Any]:
        worker = await self._idle.get()
        try:
            answer = await worker.call(job, wants, self.timeout_s)
        finally:
            self._idle.put_nowait(worker)
        return {name: redact(value, *self._keys) if isinstance(value, str) else value for name, value in answer.items()}


def _failed(answer: Mapping[str, Any]) -> Failed:
    return Failed(str(answer["failed"]), str(answer.get("words", "")))


class _Worker:
    """One process and the frames that go to and fro. After any trouble it is gone, and the next call has a new one."""

    __slots__ = ("_loaded", "_process")

    def __init__(self) -> None:
        self._process: Process | None = None
        self._loaded: set[str] = set()

    async def call(self, job: Job, wants: Wants, timeout_s: float) -> dict[str, Any]:
        if job.function not in self._loaded:
            answer = await self._ask({"load": job.function}, LOAD_TIMEOUT_S)
            if "failed" in answer:
                return answer
            self._loaded.add(job.function)
        request = {
            "function": job.function,
            "arguments": dict(job.arguments),
            "completion": job.completion,
            "cpu_limit_s": timeout_s * (os.cpu_count() or 1),
            "wants": wants,
        }
        return await self._ask(request, timeout_s)

    async def kill(self) -> None:
        process, self._process, self._loaded = self._process, None, set()
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # its children too: the worker leads a session of its own
        await process.communicate()

    async def _ask(self, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        try:
            process = self._process = self._process or await _start()
            async with asyncio.timeout(timeout_s):
                return await _exchange(process, request)
        except TimeoutError:
            await self.kill()
            return {"failed": f"{IN_VAIN} {timeout_s:g} s"}
        except (asyncio.IncompleteReadError, ConnectionError):
            await self.kill()
            return {"failed": "ended its process"}
        except BaseException:
            await self.kill()  # cancelled while an answer was under way: the next caller must not read it
            raise


async def _start() -> Process:
    # "module:function" means the same in the worker as here: it looks for modules where this process does.
    return await asyncio.create_subprocess_exec(
        *command("tasks.reward_worker"), stdin=PIPE, stdout=PIPE, start_new_session=True, env=environment()
    )


async def _exchange(process: Process, request: dict[str, Any]) -> dict[str, Any]:
    if process.stdin is None or process.stdout is None:
        raise AssertionError("the worker was started with pipes")
    body = orjson.dumps(request, default=_plain)
    process.stdin.write(LENGTH.pack(len(body)) + body)
    await process.stdin.drain()
    header = await process.stdout.readexactly(LENGTH.size)
    answer: dict[str, Any] = orjson.loads(await process.stdout.readexactly(LENGTH.unpack(header)[0]))
    return answer


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else str(value)
