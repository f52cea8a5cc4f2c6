"""A real gateway in a process of its own, whose provider answers at once and trains nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from gateway.launch import GatewayProcess, start_gateway
from whitney.client import WhitneyClient
from whitney.settings import WhitneySettings
from whitney.types import CreateRun, Run, Session

REQUEST = CreateRun(create_key="policy", provider="local", model="tiny")
ADAMW = {"optimizer": {"learning_rate": 1e-3}}


@contextmanager
def gateway(
    folder: Path,
    *,
    faults: list[dict[str, Any]] | None = None,
    delays: dict[str, float] | None = None,
    port: int = 0,
    extra: Sequence[str] = (),
) -> Iterator[GatewayProcess]:
    folder.mkdir(parents=True, exist_ok=True)
    arguments = ["--delays", json.dumps({"default": 0.0, "sample": 0.0} | (delays or {})), *extra]
    with start_gateway(folder, provider="delay", port=port, extra_args=arguments, faults=faults) as process:
        yield process


def settings_of(process: GatewayProcess, **changes: Any) -> WhitneySettings:
    return WhitneySettings(base_url=process.base_url, api_key=SecretStr(process.api_key), **changes)


@dataclass
class Opened:
    """A client with a session and an active run."""

    client: WhitneyClient
    session: Session
    run: Run

    @classmethod
    async def on(cls, client: WhitneyClient, key: str, labels: dict[str, str] | None = None) -> Opened:
        session = await client.create_session(create_key=key, labels=labels)
        return cls(client, session, await client.create_run(session.session_id, REQUEST))

    async def finish(self) -> Run:
        await self.client.finish(self.run.run_id)
        run = await self.client.wait_terminal(self.run.run_id, timeout_s=30)
        await self.client.close_session(self.session.session_id)
        return run


def sample_payload(seed: int, num_samples: int = 2) -> dict[str, Any]:
    return {
        "prompt": {"token_ids": [3, 4, 5]},
        "num_samples": num_samples,
        "sampling_params": {"max_tokens": 4, "seed": seed},
    }


def train_payload(tokens: list[int]) -> dict[str, Any]:
    def tensor(dtype: str, values: list[Any]) -> dict[str, Any]:
        return {"dtype": dtype, "shape": [len(values)], "values": values}

    loss_inputs = {
        "target_tokens": tensor("int64", tokens[1:]),
        "weights": tensor("float32", [1.0] * (len(tokens) - 1)),
    }
    return {
        "data": [{"input": {"token_ids": tokens[:-1]}, "loss_inputs": loss_inputs}],
        "loss_function": "cross_entropy",
        "loss_config": {},
    }
