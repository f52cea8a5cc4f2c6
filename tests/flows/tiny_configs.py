"""Configurations that train the tiny model in a moment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flows.config import CONFIGS, GrpoConfig, SftConfig

TINY: dict[str, Any] = {
    "model": {"name": "tiny"},
    "lora": {"rank": 8, "alpha": 16},
    "optimizer": {"learning_rate": 2e-2},
    "sampling": {"max_tokens": 6},
    "evaluation": {"samples": 2, "max_prompts": 4},
}

# Short replies are rewarded, which the tiny model learns at once.
SHORT = [{"function": "length", "arguments": {"target": 4}}]

# What a taught model is rewarded for: an answer that is right, and not too long.
MIXED = [{"function": "number"}, {"function": "length", "arguments": {"target": 3}}]

# Completions of one length, of which no two are worth the same: every group has a signal, and costs are known. The
# rate is too low for a favourite to be learnt, of which a whole group could be copies.
FIXED: dict[str, Any] = {
    "optimizer": {"learning_rate": 1e-3},
    "sampling": {"max_tokens": 6, "ignore_eos": True},
    "rewards": [{"function": "told_apart:distinct"}],
    "resample": {"drop_overlong": False},
}

OWN: dict[str, dict[str, Any]] = {
    "sft": {"batch_size": 4},
    "dpo": {"batch_size": 4, "data": {"source": "addition-1digit-preferences"}},
    "custom": {"build_loss": "algorithms:build_loss"},
    "sdpo": {"feedback": "verifier"},
    "ttt": {"groups_per_cycle": 2, "group_size": 4},
}
"""What an algorithm needs beyond two groups of four completions."""


def tiny_config(
    algorithm: str, folder: Path, *, provider: str = "local", state_id: str | None = None, **fields: Any
) -> Any:
    """Two cycles in one block of any algorithm; `fields` replace whole tables.

    `state_id`: a model that has been taught to answer, where training starts; of opd it is the teacher.
    """
    known = CONFIGS[algorithm].model_fields
    small: dict[str, Any] = {
        **TINY,
        "name": f"tiny-{algorithm}",
        "output_dir": folder,
        "model": {"name": "tiny", "provider": provider},
        "cycles": 2,
        "save_every": 1_000_000,
        "evaluation": {"enabled": False},
    }
    if "groups_per_cycle" in known:
        small |= {"groups_per_cycle": 2, "group_size": 4}
    if "rewards" in known:
        small["rewards"] = MIXED
    if state_id and algorithm == "opd":
        small["teacher"] = {"state_id": state_id}
    elif state_id:
        small["model"]["initial_state_id"] = state_id
    return CONFIGS[algorithm].model_validate({**small, **OWN.get(algorithm, {}), **fields})


def fixed_config(algorithm: str, folder: Path, *, teacher: str, **fields: Any) -> Any:
    """The same with `FIXED`, from the base model, whose completions are all different; `teacher` is opd's."""
    fixed = {name: value for name, value in FIXED.items() if name in CONFIGS[algorithm].model_fields}
    return tiny_config(algorithm, folder, state_id=teacher if algorithm == "opd" else None, **{**fixed, **fields})


def grpo_config(folder: Path, **fields: Any) -> GrpoConfig:
    """Three cycles in two blocks."""
    small = {
        **TINY,
        "name": "tiny-grpo",
        "output_dir": folder,
        "cycles": 3,
        "save_every": 2,
        "groups_per_cycle": 4,
        "group_size": 4,
        "rewards": SHORT,
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
