"""What is planned beside what is measured, in the engine on SmolLM2-135M: `python -m benchmarks.plan`.

Three shapes of work, each in a process of its own: the peak of its memory; the planned floating point operations per
second of `sample` and `forward_backward`, as a share of what plain matrix products of the same process reach; and the
seconds that a first, smaller piece of the same work lets one expect. Tokens are those of the ledger: prompts that
completions share are computed once, so a share may be above 1.
"""

from __future__ import annotations

import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from algorithms.costs import TokenCounts, flops
from algorithms.model_specs import model_spec
from benchmarks.engine import ALPHA, MODEL, RANK, THREADS, datum
from benchmarks.figures import Figure, table
from flows.checks.local_memory import Held, engine_memory

MIB = 2**20
STEPS = 3


@dataclass(frozen=True, slots=True)
class Shape:
    """So many prompts of a length, with completions of a length; where nothing is sampled, answers."""

    prompts: int
    samples: int
    prompt: int
    completion: int
    sampled: bool = True

    @property
    def held(self) -> Held:
        """As a plan sees it."""
        rows = self.prompts * self.samples
        return Held(
            rank=RANK,
            packed=self.prompts * self.prompt + rows * self.completion,
            longest=self.prompt + self.completion,
            prompts=self.prompts if self.sampled else 0,
            rows=rows if self.sampled else 0,
            prompt=self.prompt,
            completion=self.completion,
        )

    @property
    def sampling_flops(self) -> float:
        """Planned, of one batch."""
        tokens = TokenCounts(prefill=self.prompts * self.prompt, sampled=self.prompts * self.samples * self.completion)
        return flops(tokens, model_spec(MODEL), rank=RANK, context=self.context)

    @property
    def training_flops(self) -> float:
        """Planned, of one batch."""
        trained = self.prompts * self.samples * (self.prompt + self.completion - 1)
        return flops(TokenCounts(trained=trained), model_spec(MODEL), rank=RANK, context=self.context)

    @property
    def context(self) -> float:
        """Tokens that a token looks back at, in the mean."""
        return (self.prompt + self.completion) / 2


SHAPES = {
    "GRPO, 16 × 8 of 8 tokens": Shape(16, 8, 24, 8),
    "SFT, batch of 32": Shape(32, 1, 24, 24, sampled=False),
    "long prompts, 2 of 1,200": Shape(2, 1, 1200, 16),
}


def figures_of(name: str) -> list[Figure]:
    """Of one shape: planned as ours, measured as the peer's."""
    shape, found = SHAPES[name], _in_process(name)
    planned = engine_memory(model_spec(MODEL), shape.held).total / MIB
    figures = [Figure(f"{name}: memory", planned, "MiB", found["peak_mib"], at_least=0.8, at_most=1.2)]
    for kind, wanted in (("sample", shape.sampling_flops), ("train", shape.training_flops)):
        if f"{kind}_s" not in found:
            continue
        share = wanted / found[f"{kind}_s"] / found["gemm_flops"]
        figures.append(Figure(f"{name}: {kind}, of matrix products' speed", share, ""))
        figures.append(Figure(f"{name}: {kind}, seconds", found[f"{kind}_expected_s"], "s", found[f"{kind}_s"]))
    return figures


def print_shape(name: str) -> None:
    """What a shape's process has to do: measure, and print the figures as JSON."""
    print(json.dumps(_measured(SHAPES[name])))


def _in_process(name: str) -> dict[str, float]:
    environment = os.environ | {"OMP_NUM_THREADS": str(THREADS), "OMP_WAIT_POLICY": "PASSIVE"}
    command = [sys.executable, "-c", f"from benchmarks.plan import print_shape; print_shape({name!r})"]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def _measured(shape: Shape) -> dict[str, float]:
    """Seconds of the last of a few cycles, and what the first half of a batch lets one expect of it."""
    from gateway.providers.base import RunSpec, Work
    from gateway.providers.local.engine import Engine
    from gateway.providers.local.options import EngineOptions
    from whitney.types import PAYLOADS

    chooser, found = random.Random(0), {}

    def tokens(count: int) -> list[int]:
        return [chooser.randrange(100, 40_000) for _ in range(count)]

    with tempfile.TemporaryDirectory() as scratch:
        engine = Engine(EngineOptions(models=(MODEL,), threads=THREADS), Path(scratch), lambda sentence: None)
        engine.create_run(RunSpec("run", MODEL, "policy", RANK, ALPHA, seed=0))

        def seconds(*batch: tuple[str, dict[str, Any]]) -> float:
            complete = [(kind, PAYLOADS[kind].model_validate(payload).model_dump()) for kind, payload in batch]
            began = time.perf_counter()
            outcomes = engine.execute([Work("run", kind, payload, sampler_id="sampler") for kind, payload in complete])
            assert all(outcome.error is None for outcome in outcomes)
            return time.perf_counter() - began

        params = {"max_tokens": shape.completion, "seed": 1}
        prompts = [tokens(shape.prompt) for _ in range(shape.prompts)]
        asked: list[tuple[str, dict[str, Any]]] = [
            ("sample", {"prompt": {"token_ids": one}, "num_samples": shape.samples, "sampling_params": params})
            for one in prompts
        ]
        data = [datum(prompt, tokens(shape.completion)) for prompt in prompts for _ in range(shape.samples)]
        for step in range(STEPS):
            calibrating = step == STEPS - 2  # half a batch; the first cycle warms up, the last is what is measured
            part, name, times = (2, "_expected_s", 2.0) if calibrating else (1, "_s", 1.0)
            seconds(("save_weights_for_sampler", {}))
            if shape.sampled:
                found[f"sample{name}"] = times * seconds(*asked[: len(asked) // part])
            body = {"data": data[: len(data) // part], "loss_function": "cross_entropy"}
            found[f"train{name}"] = times * seconds(("forward_backward", body))
            seconds(("optim_step", {"optimizer": {"learning_rate": 1e-5}}))
        found["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {**found, "gemm_flops": _gemm_flops()}


def _gemm_flops() -> float:
    """Operations a second of matrix products as wide as the model's layers, the best of a few."""
    import torch

    spec, rows = model_spec(MODEL), 1024
    left, right = torch.randn(rows, spec.d_model), torch.randn(spec.d_model, 2 * spec.d_ff)
    best = float("inf")
    for _ in range(20):
        began = time.perf_counter()
        torch.mm(left, right)
        best = min(best, time.perf_counter() - began)
    return 2 * rows * spec.d_model * 2 * spec.d_ff / best


if __name__ == "__main__":
    for one in list(SHAPES)[: 1 if "--quick" in sys.argv else None]:
        print(table(figures_of(one)), flush=True)  # a shape takes a minute or more: none waits for the next
