"""Pipelines that train the tiny model in a moment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tiny_configs import MIXED, TINY

from flows.config.pipeline import PipelineConfig

SHARED: dict[str, Any] = {**TINY, "save_every": 1, "cycles": 2}
SFT: dict[str, Any] = {"algorithm": "sft", "config": {"batch_size": 4, "cycles": 6, "save_every": 6}}
RL: dict[str, Any] = {
    "name": "rl",
    "algorithm": "grpo",
    "config": {"cycles": 3, "groups_per_cycle": 2, "group_size": 4, "rewards": MIXED},
}
OPD: dict[str, Any] = {
    "algorithm": "opd",
    "start_from": "base",
    "teacher_from": "rl",
    "config": {"lora": {"rank": 4, "alpha": 8}, "groups_per_cycle": 2, "group_size": 2},
}


def pipeline_config(folder: Path, *stages: dict[str, Any], shared: dict[str, Any] | None = None, **fields: Any) -> Any:
    """SFT, RL from its weights, and distillation of that into a fresh student of half the rank; or other stages."""
    table = {"name": "chain", "output_dir": folder, "shared": {**SHARED, **(shared or {})}}
    return PipelineConfig.model_validate({**table, "stages": list(stages or (SFT, RL, OPD)), **fields})
