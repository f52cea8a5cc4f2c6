"""How long the completions of an earlier run were: the best that a plan of the same configuration can go by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from typing import Any

import orjson

from flows.config import FlowConfig
from flows.counts.lengths import Typical
from tasks.run_folder import RunFolder

MEAN = "completion_tokens_mean"
ALIKE = (("model", "name"), ("model", "provider"), ("data", "source"), ("sampling", "max_tokens"))
"""What has to be the same for its completions to tell of these."""


def as_in_an_earlier_run(algorithm: str, config: FlowConfig) -> Typical | None:
    """The mean length of the completions of the newest run that is alike; None where there is none.

    It is looked for in `output_dir`: under the configuration's name, or under any where it has none.
    """
    found = max(_alike(algorithm, config), key=lambda file: file.stat().st_mtime, default=None)
    if found is None:
        return None
    mean = fmean(_means(found, config.sampling.max_tokens))
    return Typical(max(mean, 1.0), "earlier_run", str(found.parent))


def _alike(algorithm: str, config: FlowConfig) -> Iterator[Path]:
    """The metrics.jsonl of every such run that has drawn completions."""
    root, wanted = config.output_dir, config.model_dump(mode="json")
    folders = RunFolder.all_of(root, config.name) if config.name else [RunFolder(path, "") for path in root.glob("*/")]
    for folder in folders:
        record, metrics = folder.read_config(), folder.path / "metrics.jsonl"
        same = all(_at(record.get("config"), path) == _at(wanted, path) for path in ALIKE)
        if record.get("algorithm") == algorithm and same and _means(metrics, config.sampling.max_tokens):
            yield metrics


def _at(table: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        table = table.get(name) if isinstance(table, Mapping) else None
    return table


def _means(metrics: Path, most: float) -> list[float]:
    """Of each cycle, as far as a completion can be so long; of a file that is gone none."""
    try:
        lines = metrics.read_bytes().splitlines()
    except OSError:
        return []
    found = [row.get(MEAN) for row in map(_row, lines) if isinstance(row, dict)]
    return [float(mean) for mean in found if isinstance(mean, int | float) and 0 <= mean <= most]


def _row(line: bytes) -> Any:
    """What a line holds; None where it is damaged, as the last one is of a process that was killed while it wrote."""
    with suppress(orjson.JSONDecodeError):
        return orjson.loads(line)
