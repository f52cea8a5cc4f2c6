"""Does the demo learn, whatever the seed? Its configuration, run as it stands, on an embedded gateway of its own.

Accuracy is on held-out questions at temperature 1, before and after. CPU seconds are those of the flow, the gateway and
the engine together; a busy neighbour moves them less than the wall clock.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.figures import Figure
from benchmarks.surroundings import prefect_server
from benchmarks.training import STARTERS, cpu_s, train_alone

CONFIG = STARTERS / "demo-grpo-addition.toml"
SEEDS = (0, 1, 2)
MOST_BEFORE, LEAST_AFTER = 0.25, 0.85


def run(quick: bool = False) -> list[Figure]:
    """Every seed's accuracy before and after, seconds and CPU seconds; `quick`: the first seed only."""
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as scratch, prefect_server(Path(scratch) / "prefect"):
        for seed in SEEDS[:1] if quick else SEEDS:
            figures += learn(seed, Path(scratch) / f"seed-{seed}")
    return figures


def learn(seed: int, folder: Path, overrides: Sequence[str] = ()) -> list[Figure]:
    """Train once, with a fresh gateway in `folder`; a Prefect server must be there. `overrides` as `--set`'s."""
    began, cpu_before = time.monotonic(), cpu_s()
    summary = train_alone(CONFIG, [f"seed={seed}", *overrides], folder).summary
    return [
        Figure(f"seed {seed}: held-out accuracy before", summary["accuracy_before"], "", at_most=MOST_BEFORE),
        Figure(f"seed {seed}: held-out accuracy after", summary["accuracy_after"], "", at_least=LEAST_AFTER),
        Figure(f"seed {seed}: wall clock", time.monotonic() - began, "s"),
        Figure(f"seed {seed}: CPU", cpu_s() - cpu_before, "s"),
    ]
