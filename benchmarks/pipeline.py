"""Do the stages of the shipped pipeline build on one another? `python -m benchmarks.pipeline [--seeds N]`.

SFT on two-digit addition, RL from there, the result distilled into a fresh student of half the rank, all on
SmolLM2-135M: deployments/configs/pipeline.toml, run as a whole on a gateway and a Prefect server of its own. Accuracy
is the share of right replies at temperature 1 to held-out sums, the same for every stage, with the 95% interval of
`algorithms.intervals`.

The goal: every stage adds to the one before, RL reaches 80%, and the student keeps 90% of its teacher.
What is found is kept in benchmarks/learning.json and shown in docs/learning.md, as `make learn` does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from algorithms.readings import Reading, reading
from benchmarks.experiments import Experiment, Finding
from benchmarks.surroundings import gateway_as_endpoint
from benchmarks.training import STARTERS

CONFIG = STARTERS / "pipeline.toml"
SFT, RL, STUDENT = "sft", "rl", "student"
LEAST_RL, LEAST_KEPT = 0.8, 0.9
SEEDS = 2


def measure(experiment: Experiment, folder: Path) -> Finding:
    """Run the pipeline; what its stages have come to."""
    stages = run(experiment.settings, folder)
    print(table(stages), flush=True)
    return finding(stages)


def finding(stages: Mapping[str, Mapping[str, Any]]) -> Finding:
    """Accuracy after each stage with its interval, what the student keeps of its teacher's, what each has cost."""
    base = accuracy(stages[SFT], "before").value
    after = {name: accuracy(stage).value for name, stage in stages.items()}
    kept = after[STUDENT] / after[RL] if after[RL] else 0.0
    figures = {"base": base, **after, "kept": kept, "cycles": sum(stage["cycles"] for stage in stages.values())}
    for name, stage in stages.items():
        figures |= zip((f"{name}, low", f"{name}, high"), accuracy(stage).interval or (), strict=True)
        figures[f"{name}, seconds"] = stage["seconds"]
        figures |= {f"{name}, {cost}": sum(stage[cost].values()) for cost in ("operations", "tokens")}
    return Finding(
        figures=figures,
        curve=[base, *after.values()],
        met=base < after[SFT] < after[RL] and after[RL] >= LEAST_RL and kept >= LEAST_KEPT,
    )


def run(settings: Sequence[str], folder: Path) -> dict[str, dict[str, Any]]:
    """The outcome of every stage by its name. `settings` as `--set`'s; a Prefect server must be there."""
    import flows
    from flows.config.pipeline import PipelineConfig
    from flows.config.stages import stage_config
    from flows.load_config import load_config

    _, config = load_config(CONFIG, [*settings, f"output_dir={json.dumps(str(folder / 'runs'))}"])
    assert isinstance(config, PipelineConfig)
    models = {stage_config(config, stage).model.name for stage in config.stages}
    with gateway_as_endpoint(folder / "gateway", models=sorted(models)):
        summary = asyncio.run(flows.pipeline(config))
    return {stage["stage"]: stage for stage in summary["stages"]}


def accuracy(stage: Mapping[str, Any], when: str = "after") -> Reading:
    """What a stage has measured on held-out sums."""
    found = reading(stage[f"evaluation_{when}"], "accuracy")
    assert found is not None, f"stage {stage['stage']} measures no accuracy"
    return found


def table(stages: Mapping[str, Mapping[str, Any]]) -> str:
    """A line a stage, and what the gates have said."""
    lines = [f"  {'stage':<8}  {'held-out accuracy [95%]':<46}  {'seconds':>7}  {'operations':>10}  {'tokens':>8}"]
    for name, stage in stages.items():
        change = f"{accuracy(stage, 'before')} → {accuracy(stage)}"
        operations, tokens = (sum(stage[cost].values()) for cost in ("operations", "tokens"))
        lines.append(f"  {name:<8}  {change:<46}  {stage['seconds']:>7.0f}  {operations:>10,}  {tokens:>8,}")
    gates = [f"  gate of {name}: {stage['gate']['message']}" for name, stage in stages.items() if stage["gate"]]
    return "\n".join([*lines, *gates])


def of_seed(seed: int) -> Experiment:
    """The pipeline with seeds of its own for every stage: one for all would show each stage the same sums first."""
    names = (SFT, RL, STUDENT)
    settings = tuple(f"stages.{name}.config.seed={len(names) * seed + place}" for place, name in enumerate(names))
    return Experiment(f"pipeline, seed {seed}", "pipeline", CONFIG.name, settings, measure)


EXPERIMENTS = tuple(of_seed(seed) for seed in range(SEEDS))


def main() -> None:
    from benchmarks.learn import measure_and_publish

    parser = argparse.ArgumentParser(prog="python -m benchmarks.pipeline", description=__doc__)
    parser.add_argument("--seeds", type=int, choices=range(1, SEEDS + 1), default=1, help="run it with so many seeds")
    measure_and_publish(EXPERIMENTS[: parser.parse_args().seeds])


if __name__ == "__main__":
    main()
