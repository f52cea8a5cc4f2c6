"""What the engine's tests share: a run to talk to in the wire's words, and datums made from plain lists."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gateway.emulation import RULES, adapted
from gateway.providers.base import Outcome, RunSpec, Work
from gateway.providers.local.engine import Engine
from gateway.providers.local.lora import LoraTensors
from gateway.providers.local.options import EngineOptions
from whitney.types import PAYLOADS

VOCABULARY = 64


def engine(folder: Path, model: str = "tiny", **options: Any) -> Engine:
    settings = {"models": (model,), "threads": 1, "deterministic": True} | options
    scratch = folder / "scratch"
    scratch.mkdir(exist_ok=True)
    return Engine(EngineOptions(**settings), scratch, lambda sentence: None)


@dataclass
class TestRun:
    """A run in an engine of this process."""

    __test__ = False  # the name begins with "Test", pytest need not look inside

    engine: Engine
    name: str = "run"
    samplers: list[str] = field(default_factory=list)

    @classmethod
    def create(cls, engine: Engine, name: str = "run", **spec: Any) -> TestRun:
        settings = {"model": next(iter(engine._folders)), "role": "policy", "rank": 4, "alpha": 8.0, "seed": 0} | spec
        engine.create_run(RunSpec(run_id=name, **settings))
        return cls(engine, name)

    def outcome(self, kind: str, payload: dict[str, Any] | None = None, **work: Any) -> Outcome:
        return self.engine.execute([Work(self.name, kind, complete(kind, payload or {}), **work)])[0]

    def do(self, kind: str, payload: dict[str, Any] | None = None, **work: Any) -> dict[str, Any]:
        outcome = self.outcome(kind, payload, **work)
        assert outcome.error is None, outcome.error
        assert outcome.result is not None
        return outcome.result

    def error(self, kind: str, payload: dict[str, Any] | None = None, **work: Any) -> tuple[str, str]:
        outcome = self.outcome(kind, payload, **work)
        assert outcome.error is not None
        return outcome.error.code, outcome.error.message

    def train(self, data: list[dict[str, Any]], loss: str = "cross_entropy", **config: float) -> dict[str, Any]:
        return self.do("forward_backward", training(data, loss, **config))

    def score(self, data: list[dict[str, Any]], loss: str = "cross_entropy", **config: float) -> dict[str, Any]:
        return self.do("forward", training(data, loss, **config))

    def step(self, learning_rate: float = 1e-2, **optimizer: Any) -> dict[str, float]:
        record = {"name": "adamw", "learning_rate": learning_rate} | optimizer
        metrics: dict[str, float] = self.do("optim_step", {"optimizer": record})["metrics"]
        return metrics

    def snapshot(self) -> str:
        self.samplers.append(f"{self.name}-sampler-{len(self.samplers)}")
        answer: str = self.do("save_weights_for_sampler", sampler_id=self.samplers[-1])["sampler_id"]
        return answer

    def logprobs(self, tokens: list[int], sampler: str | None = None) -> list[float]:
        found = self.do("logprobs", {"input": {"token_ids": tokens}}, sampler_id=sampler or self.snapshot())
        values: list[float] = found["logprobs"][1:]
        return values

    @property
    def parameters(self) -> LoraTensors:
        return self.engine._runs[self.name].state.parameters

    @property
    def gradient(self) -> LoraTensors:
        found = self.engine._runs[self.name].state.gradient
        assert found is not None
        return found

    def weights_changed(self) -> None:
        """Tell the engine that a test wrote into the parameters."""
        self.engine._runs[self.name].version = next(self.engine._versions)


def complete(kind: str, payload: dict[str, Any]) -> dict[str, Any]:
    """The payload as the gateway hands it over: validated, with every default of the contract in it."""
    return adapted(RULES["local"], PAYLOADS[kind].model_validate(payload))


def training(data: list[dict[str, Any]], loss: str = "cross_entropy", **config: float) -> dict[str, Any]:
    return {"data": data, "loss_function": loss, "loss_config": config}


def sampling(prompt: list[int], num_samples: int = 1, *, top: int = 0, **params: Any) -> dict[str, Any]:
    payload = {
        "prompt": {"token_ids": prompt},
        "num_samples": num_samples,
        "sampling_params": {"max_tokens": 8} | params,
        "topk_prompt_logprobs": top,
    }
    return complete("sample", payload)


def ints(values: list[int], shape: list[int] | None = None) -> dict[str, Any]:
    return {"dtype": "int64", "shape": shape or [len(values)], "values": values}


def floats(values: list[float], shape: list[int] | None = None) -> dict[str, Any]:
    return {"dtype": "float32", "shape": shape or [len(values)], "values": values}


def datum(prompt: list[int], completion: list[int], **per_token: list[float]) -> dict[str, Any]:
    """Right-shifted, as the contract has it; `per_token` lists cover the completion, weights are 1 where not given."""
    full = prompt + completion
    pad = [0.0] * (len(prompt) - 1)
    inputs = {"weights": [1.0] * len(completion)} | per_token
    return {
        "input": {"token_ids": full[:-1]},
        "loss_inputs": {"target_tokens": ints(full[1:])}
        | {name: floats(pad + values) for name, values in inputs.items()},
    }


def some_tokens(seed: int, count: int) -> list[int]:
    chooser = random.Random(seed)
    return [chooser.randrange(3, VOCABULARY) for _ in range(count)]


def rl_data(seed: int = 0, groups: int = 2, size: int = 3) -> list[dict[str, Any]]:
    """Groups that share a prompt, with sampler log-probs and advantages that put some tokens beyond every clip."""
    chooser = random.Random(seed)
    data = []
    for group in range(groups):
        prompt = some_tokens(seed + 100 * group, 7)
        for _ in range(size):
            completion = some_tokens(chooser.randrange(10**6), chooser.randrange(2, 6))
            data.append(
                datum(
                    prompt,
                    completion,
                    weights=[chooser.choice([1.0, 0.5]) for _ in completion],
                    logprobs=[-chooser.uniform(0.5, 6) for _ in completion],
                    advantages=[chooser.gauss(0, 1) for _ in completion],
                )
            )
    return data
