"""A gateway in this process, reached over ASGI, with a provider that can be watched, held and broken."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from gateway.app import build_app
from gateway.emulation import RULES
from gateway.gateway import Gateway
from gateway.providers.base import Outcome, RunSpec, Work
from gateway.providers.delay import DelayProvider, Delays
from gateway.scheduler import Gathering
from gateway.storage import DataDirectory
from whitney.routes import PREFIX
from whitney.types import WireErrorDetail

KEY = "key-of-the-tests"
PROMPT = [5, 6, 7]


class WatchedProvider(DelayProvider):
    """The delay provider without delays. It remembers its batches, and waits at `gate` while that is shut."""

    def __init__(self) -> None:
        super().__init__(("tiny",), Delays(default=0, sample=0))
        self.batches: list[list[Work]] = []
        self.released: list[str] = []
        self.created: list[RunSpec] = []
        self.breaks: dict[str, Exception | str] = {}
        self.starts = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.standing = asyncio.Event()  # a batch stands at the shut gate

    async def start(self) -> None:
        self.starts += 1
        await super().start()

    async def create_run(self, spec: RunSpec) -> None:
        await self.gate.wait()
        await super().create_run(spec)
        self.created.append(spec)

    async def execute(self, batch: Sequence[Work]) -> list[Outcome]:
        self.batches.append(list(batch))
        if not self.gate.is_set():
            self.standing.set()
        await self.gate.wait()
        self.standing.clear()
        broken = self.breaks.get(batch[0].kind)
        if isinstance(broken, Exception):
            raise broken
        outcomes = await super().execute(batch)
        if isinstance(broken, str):
            outcomes[-1 if len(batch) == 1 else 1] = Outcome(error=WireErrorDetail(code=broken, message="it broke"))
        return outcomes

    async def release_run(self, run_id: str) -> None:
        self.released.append(run_id)
        await super().release_run(run_id)


class Caller:
    """One gateway and a client of it."""

    def __init__(self, gateway: Gateway, provider: WatchedProvider, http: httpx.AsyncClient, clock: Clock) -> None:
        self.gateway, self.provider, self.http, self.clock = gateway, provider, http, clock

    async def send(self, method: str, path: str, body: Any = None, **options: Any) -> httpx.Response:
        if body is not None:
            options["json"] = body
        return await self.http.request(method, PREFIX + path, **options)

    async def get(self, path: str, **params: Any) -> Any:
        answer = await self.send("GET", path, params=params)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def open_session(self) -> str:
        session: str = (await self.send("POST", "/sessions", {"create_key": uuid4().hex})).json()["session_id"]
        return session

    def run_body(self, **fields: Any) -> dict[str, Any]:
        row = self.gateway.capabilities()[0]
        return {"create_key": uuid4().hex, "provider": row.provider, "model": row.model, "lora": {"rank": 4}} | fields

    async def open_run(self, session_id: str | None = None, **fields: Any) -> str:
        session_id = session_id or await self.open_session()
        answer = await self.send("POST", f"/sessions/{session_id}/runs", self.run_body(**fields))
        assert answer.status_code == 200, answer.text
        run_id: str = answer.json()["run_id"]
        return run_id

    async def post(
        self, run_id: str, seq_id: int, kind: str, payload: Any, sampler: str | None = None
    ) -> httpx.Response:
        route = f"/runs/{run_id}/samplers/{sampler}/operations" if sampler else f"/runs/{run_id}/operations"
        return await self.send("POST", route, {"seq_id": seq_id, "kind": kind, "payload": payload})

    async def wait(self, run_id: str, seq_id: int) -> dict[str, Any]:
        operation: dict[str, Any] = await self.get(f"/runs/{run_id}/operations/{seq_id}", wait_s=20)
        return operation

    async def do(self, run_id: str, seq_id: int, kind: str, payload: Any) -> dict[str, Any]:
        answer = await self.post(run_id, seq_id, kind, payload)
        assert answer.status_code == 202, answer.text
        operation = await self.wait(run_id, seq_id)
        assert operation["status"] == "succeeded", operation
        result: dict[str, Any] = operation["result"]
        return result

    async def open_sampler(self, run_id: str) -> str:
        """A snapshot, made by the run's seq_id 0."""
        sampler_id: str = (await self.do(run_id, 0, "save_weights_for_sampler", {}))["sampler_id"]
        return sampler_id

    async def until_executing(self) -> None:
        """Until a batch stands at the provider's shut gate."""
        async with asyncio.timeout(10):
            await self.provider.standing.wait()


class Clock:
    """Unix time that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


Start = Callable[..., Any]


@asynccontextmanager
async def running(
    folder: Path, *, rules: str = "local", max_body_bytes: int = 1 << 20, clock: Clock | None = None, **options: Any
) -> AsyncIterator[Caller]:
    """A gateway on `folder`, started and stopped."""
    data, provider, clock = DataDirectory(folder), WatchedProvider(), clock or Clock()
    data.open()
    options.setdefault("gathering", Gathering(quiet_s=0.02, cap_s=0.2))
    try:
        async with Gateway(data, provider, RULES[rules], clock=clock, **options) as gateway:  # type: ignore[index]
            app = build_app(gateway, KEY, max_body_bytes=max_body_bytes)
            headers = {"authorization": f"Bearer {KEY}"}
            transport = httpx.ASGITransport(app=app)
            async with httpx.AsyncClient(transport=transport, base_url="http://test", headers=headers) as http:
                yield Caller(gateway, provider, http, clock)
    finally:
        data.close()


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """`async with start(rules="modal", …) as caller`; a second start on the same folder is a restart."""

    def begin(**options: Any) -> Any:
        return running(tmp_path, **options)

    return begin


@pytest.fixture
async def caller(start: Start) -> AsyncIterator[Caller]:
    async with start() as caller:
        yield caller


@pytest.fixture
def payloads() -> Payloads:
    return Payloads()


class Payloads:
    """Small valid payloads."""

    @property
    def optim_step(self) -> dict[str, Any]:
        return {"optimizer": {"learning_rate": 1e-3}}

    def sample(self, count: int = 1, *, seed: int = 0, max_tokens: int = 4) -> dict[str, Any]:
        params = {"max_tokens": max_tokens, "seed": seed}
        return {"prompt": {"token_ids": PROMPT}, "num_samples": count, "sampling_params": params}

    def datum(self, loss: str = "cross_entropy", **changed: Any) -> dict[str, Any]:
        """A datum of three tokens with what `loss` needs; `changed` replaces a loss input, None removes it."""
        floats = {"dtype": "float32", "shape": [3], "values": [0.0, 1.0, 1.0]}
        inputs = {"target_tokens": {"dtype": "int64", "shape": [3], "values": [6, 7, 8]}, "weights": floats}
        if loss == "ppo_critic":
            inputs = {"weights": floats, "values": floats, "returns": floats}
        elif loss != "cross_entropy":
            inputs |= {"logprobs": floats, "advantages": floats}
        inputs = {name: tensor for name, tensor in (inputs | changed).items() if tensor is not None}
        return {"input": {"token_ids": PROMPT}, "loss_inputs": inputs}

    def training(self, loss: str = "cross_entropy", *, config: Any = None, **changed: Any) -> dict[str, Any]:
        return {"data": [self.datum(loss, **changed)], "loss_function": loss, "loss_config": config or {}}


@pytest.fixture
def floats() -> Callable[..., dict[str, Any]]:
    """A float tensor; one number a token, or a shape and its values."""

    def tensor(*values: float, shape: Sequence[int] | None = None) -> dict[str, Any]:
        return {"dtype": "float32", "shape": list(shape or [len(values)]), "values": list(values)}

    return tensor
