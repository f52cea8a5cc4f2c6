"""Fields of a stage that its algorithm refuses, named as the pipeline's file has them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from flows.config import CONFIGS
from flows.config.mistakes import mistakes
from flows.config.stage import StageConfig
from flows.config.staged import StagedConfig


def stage_mistakes(pipeline: StagedConfig, stage: StageConfig, where: str, error: ValidationError) -> Iterator[str]:
    """What pydantic has found in a stage's table, a line each; of what `shared` says, by the name it has there."""
    for line in mistakes(CONFIGS[stage.algorithm], error):
        path = re.match(r"[\w.\[\]]+(?= = | is missing)", line)
        if path is None:
            yield f"{where}.config: {line}"
        elif _has(pipeline.shared, path[0]) and not _has(stage.config, path[0]):
            yield f"shared.{line} (as {where} takes it)"
        else:
            yield f"{where}.config.{line}"


def _has(table: Any, path: str) -> bool:
    """Whether a table says something at a place, as a message names it: `model.name`, `rewards[0].weight`."""
    for part in re.findall(r"\w+", path):
        if isinstance(table, Mapping) and part in table:
            table = table[part]
        elif isinstance(table, list) and part.isdecimal():
            table = table[int(part)]
        else:
            return False
    return True
