"""What is planned beside what is measured, in the engine on SmolLM2-135M: `python -m benchmarks.plan`.

Shapes of work, each in a process of its own: the peak of its memory; the planned floating point operations per
second of `sample` and `forward_backward`, as a share of what plain matrix products of the same process reach; and the
seconds that a first, smaller piece of the same work lets one expect. Tokens are those of the ledger: prompts that
completions share are computed once, so a share may be above 1.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from algorithms.costs import TokenCounts, flops
from algorithms.model_specs import model_spec
from benchmarks.engine import MODEL, RANK, THREADS
from benchmarks.figures import Figure, table
from flows.plan.engine_memory import engine_memory
from flows.plan.engine_work import Held

MIB = 2**20
PEAKS = Path(__file__).with_suffix(".json")
"""What docs/costs.md quotes, and a test holds plans against."""


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
        return Held(
            rank=RANK,
            prompts=self.prompts,
            samples=self.samples,
            prompt=self.prompt,
            longest_prompt=self.prompt,
            completion=self.completion,
            sampled=self.sampled,
            even=True,
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


def run(quick: bool = False) -> list[Figure]:
    """Each shape, one process at a time; `quick`: the first one. A measured peak is kept in benchmarks/plan.json."""
    return [figure for name in list(SHAPES)[: 1 if quick else None] for figure in figures_of(name)]


def figures_of(name: str) -> list[Figure]:
    """Of one shape: planned as ours, measured as the peer's."""
    shape, found = SHAPES[name], _in_process(name)
    planned = engine_memory(model_spec(MODEL), shape.held).total / MIB
    figures = [Figure(f"{name}: memory", planned, "MiB", found["peak_mib"], at_least=0.9, at_most=1.1)]
    peaks = json.loads(PEAKS.read_text(encoding="utf-8")) if PEAKS.is_file() else {}
    kept = {"planned_mib": round(planned), "measured_mib": round(found["peak_mib"])}
    PEAKS.write_text(json.dumps(peaks | {name: kept}, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    for kind, wanted in (("sample", shape.sampling_flops), ("train", shape.training_flops)):
        if f"{kind}_" not in found:
            continue
        share = wanted / found[f"{kind}_"] / found["gemm_flops"]
        figures.append(Figure(f"{name}: {kind}, of matrix products' speed", share, ""))
        figures.append(Figure(f"{name}: {kind}, seconds", found[f"{kind}_expected"], "s", found[f"{kind}_"]))
    return figures


def _in_process(name: str) -> dict[str, float]:
    environment = os.environ | {"OMP_NUM_THREADS": str(THREADS), "OMP_WAIT_POLICY": "PASSIVE"}
    shape = SHAPES[name]
    numbers = (shape.prompts, shape.samples, shape.prompt, shape.completion, int(shape.sampled))
    command = [sys.executable, "-m", "benchmarks.plan_process", *map(str, numbers)]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


if __name__ == "__main__":
    for one in list(SHAPES)[: 1 if "--quick" in sys.argv else None]:
        print(table(figures_of(one)), flush=True)  # a shape takes a minute or more: none waits for the next
