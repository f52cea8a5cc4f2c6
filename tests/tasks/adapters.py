"""Adapters of the tiny model, made with NumPy: whole ones, and what can be wrong with one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

import models
from models.adapter import CONFIG_FILE, WEIGHTS_FILE, AdapterFolder, matrices
from models.gguf import Floats
from tasks.adapter import Expected

RANK, ALPHA = 4, 8.0
LINEARS = ["down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"]
Tensors = dict[str, Any]


def expected(**other: Any) -> Expected:
    """What the run says of the adapter that `write_adapter` writes."""
    return Expected(**{"model": "tiny", "rank": RANK, "alpha": ALPHA, "base": models.resolve("tiny"), **other})


def write_adapter(
    folder: Path,
    *,
    config: dict[str, Any] | None = None,
    tensors: Callable[[Tensors], None] = lambda tensors: None,
    base: models.ModelFolder | None = None,
) -> AdapterFolder:
    """A whole adapter, but for what `config` says otherwise and `tensors` changes."""
    base = base or models.resolve("tiny")
    random = np.random.default_rng(3)

    def normal(*shape: int) -> Floats:
        return (random.standard_normal(shape) * 0.1).astype(np.float32)

    written: Tensors = {}
    for module, (rows, columns) in matrices(base).items():
        if module != "lm_head":
            written[key(module, "A")] = normal(RANK, columns)
            written[key(module, "B")] = normal(rows, RANK)
    tensors(written)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(written, folder / WEIGHTS_FILE)
    said = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": "tiny"}
    said |= {"r": RANK, "lora_alpha": ALPHA, "target_modules": LINEARS, **(config or {})}
    (folder / CONFIG_FILE).write_text(json.dumps(said))
    return AdapterFolder(folder)


def key(module: str, side: str) -> str:
    """PEFT's name of half a pair."""
    return f"base_model.model.{module}.lora_{side}.weight"
