"""Stages of a pipeline whose configuration is a file of its own: read in, so that the pipeline says all there is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from flows.config import ConfigError

STAND_ALONE = ("algorithm", "name", "output_dir", "approval", "skip_unchanged")
"""What a file says of a run by itself; of a stage the pipeline says it. `whitney init` writes them all."""


def with_stage_files(
    table: Mapping[str, Any], where: str, folder: Path, read_table: Callable[[Path], dict[str, Any]]
) -> dict[str, Any]:
    """A table in whose `stages` no `config` is the path of a file any more: each is what the file says.

    A path begins at `folder`. A stage that names no algorithm has that of its file. Messages begin with `where`.

    Raises:
        ConfigError: a file cannot be read, or is another algorithm's; names file and stage.
    """
    stages = table.get("stages")
    if not isinstance(stages, list):
        return dict(table)
    read = [
        _read_in(stage, index, where, folder, read_table) if _names_a_file(stage) else stage
        for index, stage in enumerate(stages)
    ]
    return {**table, "stages": read}


def _names_a_file(stage: Any) -> bool:
    return isinstance(stage, dict) and isinstance(stage.get("config"), str)


def _read_in(
    stage: dict[str, Any], index: int, where: str, folder: Path, read_table: Callable[[Path], dict[str, Any]]
) -> dict[str, Any]:
    named = stage.get("name", stage.get("algorithm"))
    told = f"{where}: stages.{named}.config" if named else f"{where}: stages[{index}].config"
    try:
        table = read_table(folder / stage["config"])
    except ConfigError as error:
        raise ConfigError(f"{told} = {stage['config']!r}: {error}") from None
    algorithm = stage.get("algorithm", table.get("algorithm"))
    if table.get("algorithm", algorithm) != algorithm:
        raise ConfigError(
            f"{told} = {stage['config']!r}: the file is of algorithm {table['algorithm']}, the stage of {algorithm}"
        )
    config = {name: value for name, value in table.items() if name not in STAND_ALONE}
    return {**stage, **({"algorithm": algorithm} if algorithm else {}), "config": config}
