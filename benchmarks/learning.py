"""Does the demo learn, whatever the seed? Its configuration, run as it stands, on an embedded gateway of its own.

Accuracy is on held-out questions at temperature 1, before and after. CPU seconds are those of the flow, the gateway and
the engine together; a busy neighbour moves them less than the wall clock.
"""

from __future__ import annotations

import asyncio
import resource
import tempfile
import time
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, cast

from benchmarks.figures import Figure
from benchmarks.surroundings import gateway_as_endpoint, prefect_server

CONFIG = Path(__file__).parents[1] / "deployments" / "configs" / "demo-grpo-addition.toml"
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
    import flows
    from flows.load_config import load_config

    settings = [f"seed={seed}", f'output_dir="{folder / "runs"}"', *overrides]
    algorithm, config = load_config(CONFIG, settings)
    began, cpu_before = time.monotonic(), _cpu_s()
    with gateway_as_endpoint(folder / "gateway", provider=config.model.provider, models=(config.model.name,)):
        flow_run = cast("Coroutine[Any, Any, dict[str, Any]]", flows.FLOWS[algorithm](config))
        summary = asyncio.run(flow_run)
        seconds = time.monotonic() - began
    # The gateway has ended by now, and with it the engine: only then does the system tell what children have used.
    cpu_s = _cpu_s() - cpu_before
    return [
        Figure(f"seed {seed}: held-out accuracy before", summary["accuracy_before"], "", at_most=MOST_BEFORE),
        Figure(f"seed {seed}: held-out accuracy after", summary["accuracy_after"], "", at_least=LEAST_AFTER),
        Figure(f"seed {seed}: wall clock", seconds, "s"),
        Figure(f"seed {seed}: CPU", cpu_s, "s"),
    ]


def _cpu_s() -> float:
    """CPU seconds of this process and of its children that have ended."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
