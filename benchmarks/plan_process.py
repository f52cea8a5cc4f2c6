"""One shape of work in the engine, in a process that holds little else: what `benchmarks.plan` measures.

`python -m benchmarks.plan_process PROMPTS SAMPLES PROMPT COMPLETION SAMPLED` prints it as JSON; the last is 0 or 1.
"""

from __future__ import annotations

import json
import random
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from algorithms.model_specs import model_spec
from benchmarks.engine import ALPHA, MODEL, RANK, THREADS, datum
from gateway.providers.base import RunSpec, Work
from gateway.providers.local.engine import Engine
from gateway.providers.local.options import EngineOptions
from whitney.types import PAYLOADS

CYCLES = ("warm", "as_run", "expected", "")
"""Weights are merged, and moments there, from the second one on. The third does half a batch, for what one may expect
of the last, which is measured."""

Operation = tuple[str, dict[str, Any]]


def measured(prompts: int, samples: int, prompt: int, completion: int, sampled: int) -> dict[str, float]:
    """Seconds of `sample` and `train`, expected and found; the peak of memory; the speed of matrix products."""
    chooser, found = random.Random(0), {}

    def tokens(count: int) -> list[int]:
        return [chooser.randrange(100, 40_000) for _ in range(count)]

    asked_about = [tokens(prompt) for _ in range(prompts)]
    params = {"max_tokens": completion, "seed": 1}
    asked: list[Operation] = [
        ("sample", {"prompt": {"token_ids": one}, "num_samples": samples, "sampling_params": params})
        for one in asked_about
    ]
    data = [datum(one, tokens(completion)) for one in asked_about for _ in range(samples)]
    with tempfile.TemporaryDirectory() as scratch:
        engine = Engine(EngineOptions(models=(MODEL,), threads=THREADS), Path(scratch), lambda sentence: None)
        engine.create_run(RunSpec("run", MODEL, "policy", RANK, ALPHA, seed=0))
        for cycle in CYCLES:
            part = 2 if cycle == "expected" else 1
            _seconds(engine, ("save_weights_for_sampler", {}))
            if sampled:
                found[f"sample_{cycle}"] = part * _seconds(engine, *asked[: len(asked) // part])
            body = {"data": data[: len(data) // part], "loss_function": "cross_entropy"}
            found[f"train_{cycle}"] = part * _seconds(engine, ("forward_backward", body))
            _seconds(engine, ("optim_step", {"optimizer": {"learning_rate": 1e-5}}))
    found["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {**found, "gemm_flops": _gemm_flops()}


def _seconds(engine: Engine, *batch: Operation) -> float:
    complete = [(kind, PAYLOADS[kind].model_validate(payload).model_dump()) for kind, payload in batch]
    began = time.perf_counter()
    outcomes = engine.execute([Work("run", kind, payload, sampler_id="sampler") for kind, payload in complete])
    assert all(outcome.error is None for outcome in outcomes)
    return time.perf_counter() - began


def _gemm_flops() -> float:
    """Operations a second of matrix products as wide as the model's layers, the best of a few."""
    spec, rows = model_spec(MODEL), 1024
    left, right = torch.randn(rows, spec.d_model), torch.randn(spec.d_model, 2 * spec.d_ff)
    best = float("inf")
    for _ in range(20):
        began = time.perf_counter()
        torch.mm(left, right)
        best = min(best, time.perf_counter() - began)
    return 2 * rows * spec.d_model * 2 * spec.d_ff / best


if __name__ == "__main__":
    print(json.dumps(measured(*map(int, sys.argv[1:]))))
