"""The configurations that are disturbed: three cycles of the tiny model, measured before and after, exported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

CYCLES = 3

# What a taught model is paid for: an answer that is right, and not too long. So groups have a signal.
_PAID = [{"function": "number"}, {"function": "length", "arguments": {"target": 3}}]

_SHARED: dict[str, Any] = {
    "model": {"name": "tiny"},
    "lora": {"rank": 8, "alpha": 16},
    "optimizer": {"learning_rate": 2e-2},
    "cycles": CYCLES,
    "evaluation": {"samples": 2, "max_prompts": 2},
}
_GROUPS = {"groups_per_cycle": 2, "group_size": 4, "sampling": {"max_tokens": 6}}

OWN: dict[str, dict[str, Any]] = {
    "grpo": _GROUPS | {"rewards": _PAID},
    "dapo": _GROUPS | {"rewards": _PAID},
    "opd": _GROUPS,
    "sft": {"batch_size": 4, "data": {"source": "addition-1digit"}},
}
PIPELINE = "pipeline"
"""Two of them, one after another: what stands for an algorithm where a pipeline is disturbed."""

STAGES = ("sft", "grpo")
ALGORITHMS = (*OWN, PIPELINE)


def config(algorithm: str, save_every: int, folder: Path, taught: str) -> dict[str, Any]:
    """The flow's parameter; `taught` is the state that training starts from, and of a distillation the teacher."""
    if algorithm == PIPELINE:
        return _pipeline(save_every, folder, taught)
    own = {**_SHARED, **OWN[algorithm], "name": "run", "output_dir": str(folder / "runs"), "save_every": save_every}
    if algorithm == "opd":
        return {**own, "teacher": {"state_id": taught}}
    return {**own, "model": {"name": "tiny", "initial_state_id": taught}}


def run_folders(algorithm: str, folder: Path) -> dict[str, Path]:
    """The run folder, or each stage's, by what begins the names of its parts."""
    run = folder / "runs" / "run"
    if algorithm != PIPELINE:
        return {"": run}
    names = [f"{number}-{stage}" for number, stage in enumerate(STAGES, 1)]
    return {f"{name} ": run / name for name in names}


def _pipeline(save_every: int, folder: Path, taught: str) -> dict[str, Any]:
    start = {"model": {"name": "tiny", "initial_state_id": taught}}
    stages = [{"algorithm": stage, "config": OWN[stage] | (start if stage == STAGES[0] else {})} for stage in STAGES]
    shared = _SHARED | {"save_every": save_every}
    return {"name": "run", "output_dir": str(folder / "runs"), "shared": shared, "stages": stages}


def teaching(folder: Path) -> dict[str, Any]:
    """A short supervised run: the tiny model's first words never end, after this it answers with numbers, and stops."""
    own = {"name": "taught", "output_dir": str(folder / "runs"), "cycles": 6, "save_every": 6}
    return {**_SHARED, **OWN["sft"], **own, "batch_size": 16, "evaluation": {"enabled": False}}
