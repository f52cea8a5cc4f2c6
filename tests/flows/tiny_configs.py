"""Configurations that train the tiny model in a moment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flows.config import GrpoConfig, SftConfig

TINY: dict[str, Any] = {
    "model": {"name": "tiny"},
    "lora": {"rank": 8, "alpha": 16},
    "optimizer": {"learning_rate": 2e-2},
    "sampling": {"max_tokens": 6},
    "evaluation": {"samples": 2, "max_prompts": 4},
}


def grpo_config(folder: Path, **fields: Any) -> GrpoConfig:
    """Three cycles in two blocks; short replies are rewarded, which the tiny model learns at once."""
    small = {
        **TINY,
        "name": "tiny-grpo",
        "output_dir": folder,
        "cycles": 3,
        "save_every": 2,
        "groups_per_cycle": 4,
        "group_size": 4,
        "rewards": [{"function": "length", "arguments": {"target": 4}}],
    }
    return GrpoConfig.model_validate({**small, **fields})


def sft_config(folder: Path, **fields: Any) -> SftConfig:
    """A dozen cycles in one block."""
    small = {
        **TINY,
        "name": "tiny-sft",
        "output_dir": folder,
        "cycles": 12,
        "save_every": 12,
        "batch_size": 16,
        "data": {"source": "addition-2digit"},
    }
    return SftConfig.model_validate({**small, **fields})
