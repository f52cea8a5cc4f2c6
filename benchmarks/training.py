"""One training run for a benchmark: a starter configuration with settings of its own, and what came of it."""

from __future__ import annotations

import asyncio
import json
import resource
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.surroundings import gateway_as_endpoint

STARTERS = Path(__file__).parents[1] / "deployments" / "configs"


@dataclass(frozen=True, slots=True)
class Trained:
    """A finished run.

    Attributes:
        summary: what the flow returned.
        rows: the metrics of every cycle, as in metrics.jsonl.
    """

    summary: dict[str, Any]
    rows: list[dict[str, float]]

    def curve(self, metric: str) -> list[float]:
        """The metric of every cycle that has it."""
        return [row[metric] for row in self.rows if metric in row]


def train(starter: Path, settings: Sequence[str], folder: Path) -> Trained:
    """Run a starter with `settings` as `--set`'s, its run folder in `folder`.

    The environment names a gateway; a Prefect server must be there.
    """
    import flows
    from flows.load_config import load_algorithm

    algorithm, config = load_algorithm(starter, [*settings, f'output_dir="{folder / "runs"}"'])
    summary = asyncio.run(flows.FLOWS[algorithm](config))
    metrics = Path(summary["run_folder"], "metrics.jsonl").read_text(encoding="utf-8")
    return Trained(summary, [json.loads(line) for line in metrics.splitlines()])


def train_alone(starter: Path, settings: Sequence[str], folder: Path) -> Trained:
    """`train` on a gateway of its own in `folder`, which has ended when this returns."""
    from flows.load_config import load_algorithm

    model = load_algorithm(starter, settings)[1].model
    with gateway_as_endpoint(folder / "gateway", provider=model.provider, models=(model.name,)):
        return train(starter, settings, folder)


def cpu_s() -> float:
    """CPU seconds of this process and of its children that have ended: a gateway counts once it is gone."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
