"""Gateways that are killed and started again by the dozen, and a client that trains through it.

Each is a process of its own and the whole gateway, forked from a server that has imported it once: a start takes a
tenth of what one from nothing does.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from gateway.options import GatewayOptions
from gateway.providers.delay import Delays
from gateway.serve import serve
from whitney.client import WhitneyClient
from whitney.errors import ApiError, OperationError, WhitneyError
from whitney.retry import RetryPolicy
from whitney.settings import WhitneySettings
from whitney.types import CreateRun, Initial

KEY = "key-of-the-tests"
TOKENS = [5, 6, 7]
STEP = {"optimizer": {"learning_rate": 1e-3}}

_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(["gateway.serve"])


def _serve(options: GatewayOptions, listening: Connection) -> None:
    os.environ["WHITNEY_API_KEY"] = KEY
    serve(options, on_listening=listening.send)


@dataclass
class Killable:
    """A gateway on one data directory and, from its second life on, one port."""

    data_dir: Path
    port: int = 0
    deaths: list[int] = field(default_factory=list)

    @property
    def script(self) -> Path:
        """Its scripted faults."""
        return self.data_dir / "faults.json"

    async def live(self) -> None:
        """Start it, without faults; returns when it listens."""
        self.script.write_text('{"faults": []}')
        options = GatewayOptions(
            port=self.port,
            data_dir=self.data_dir,
            provider="delay",
            models=("tiny",),
            delays=Delays(default=0.002, sample=0.002),
            faults=self.script,
        )
        ours, theirs = _PROCESSES.Pipe(duplex=False)
        self.process = _PROCESSES.Process(target=_serve, args=(options, theirs), daemon=True)
        self.process.start()
        theirs.close()
        with ours:
            base_url: str = await asyncio.to_thread(ours.recv)
        self.port = int(base_url.rpartition(":")[2])

    async def suffer(self, fault: dict[str, Any]) -> None:
        """Give it a fault to come."""
        self.script.write_text(json.dumps({"faults": [fault]}))
        notice = self.data_dir / "gateway.json"
        before = notice.read_bytes()
        os.kill(self.process.pid or 0, signal.SIGHUP)
        while notice.read_bytes() == before:
            await asyncio.sleep(0.001)

    async def dead(self) -> int:
        """Wait for its end; the exit code."""
        await asyncio.to_thread(self.process.join)
        code = self.process.exitcode
        assert code is not None
        self.deaths.append(code)
        self.process.close()
        return code

    def settings(self) -> WhitneySettings:
        return WhitneySettings(base_url=f"http://127.0.0.1:{self.port}", api_key=SecretStr(KEY))


@asynccontextmanager
async def killable(data_dir: Path) -> AsyncIterator[Killable]:
    data_dir.mkdir(exist_ok=True)
    gateway = Killable(data_dir)
    await gateway.live()
    try:
        yield gateway
    finally:
        gateway.process.kill()
        await gateway.dead()


def client_of(gateway: Killable) -> WhitneyClient:
    return WhitneyClient(gateway.settings(), retry=RetryPolicy(deadline_s=30, base_s=0.02, longest_s=0.05))


@dataclass
class Trainer:
    """Trains `cycles` cycles of every kind of operation in a session; a run that is lost is followed by another one,
    from the last state whose saving was answered."""

    client: WhitneyClient
    name: str
    cycles: int
    state_id: str | None = None
    done: int = 0
    errors: list[WhitneyError] = field(default_factory=list)
    session_id: str = ""

    async def train(self) -> str:
        """The SHA-256 of the last state."""
        while self.done < self.cycles:
            try:
                await self._attempt()
            except (OperationError, ApiError) as error:
                self.errors.append(error)
        assert self.state_id is not None
        return (await self.client.get_state(self.state_id)).sha256

    async def _attempt(self) -> None:
        session = await self.client.create_session(create_key=self.name)
        assert self.session_id in ("", session.session_id)
        self.session_id = session.session_id
        request = CreateRun(
            create_key=f"attempt-{len(self.errors)}",
            provider="local",
            model="tiny",
            initial=Initial(state_id=self.state_id) if self.state_id else None,
        )
        run = await self.client.create_run(session.session_id, request)
        while self.done < self.cycles:
            self.state_id = await self._cycle(run.run_id)
            self.done += 1
        await self.client.finish(run.run_id)
        await self.client.wait_terminal(run.run_id)

    async def _cycle(self, run_id: str) -> str:
        sampler_id = (await self.client.run_operation(run_id, "save_weights_for_sampler", {}))["sampler_id"]
        prompt = {"token_ids": TOKENS}
        sampling = {"prompt": prompt, "num_samples": 2, "sampling_params": {"max_tokens": 4, "seed": self.done}}
        training = {"data": [_datum()], "loss_function": "cross_entropy"}
        submit = self.client.submit_run_operation
        handles = [
            self.client.submit_sampler_operation(run_id, sampler_id, "sample", sampling),
            self.client.submit_sampler_operation(run_id, sampler_id, "logprobs", {"input": prompt}),
            submit(run_id, "forward", training),
            submit(run_id, "forward_backward", training),
            submit(run_id, "optim_step", STEP),
            submit(run_id, "export_lora", {}),
            submit(run_id, "save_state", {}),
        ]
        results = await asyncio.gather(*handles, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        state_id: str = results[-1]["state_id"]  # type: ignore[index] # no exception
        return state_id


def _datum() -> dict[str, Any]:
    inputs = {
        "target_tokens": {"dtype": "int64", "shape": [3], "values": [6, 7, 8]},
        "weights": {"dtype": "float32", "shape": [3], "values": [0.0, 1.0, 1.0]},
    }
    return {"input": {"token_ids": TOKENS}, "loss_inputs": inputs}
