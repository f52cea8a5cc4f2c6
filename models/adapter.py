"""A LoRA adapter (arXiv 2106.09685) in PEFT's layout, read without torch, and where in a base model it belongs."""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from models.errors import ModelError
from models.folder import ModelFolder
from models.tensor_file import TensorFile

CONFIG_FILE, WEIGHTS_FILE = "adapter_config.json", "adapter_model.safetensors"

_KEY = re.compile(r"base_model\.model\.(?P<module>.+)\.lora_(?P<side>[AB])\.weight")


@dataclass(frozen=True)
class AdapterFolder:
    """A folder with `adapter_config.json` and `adapter_model.safetensors`."""

    path: Path

    @cached_property
    def config(self) -> dict[str, Any]:
        """`adapter_config.json`.

        Raises:
            ModelError: it is missing, or no JSON object.
        """
        try:
            config = json.loads((self.path / CONFIG_FILE).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            why = "is missing" if isinstance(error, FileNotFoundError) else f"cannot be read as JSON: {error}"
            raise ModelError(f"{CONFIG_FILE} {why}") from error
        if not isinstance(config, dict):
            raise ModelError(f"{CONFIG_FILE} holds a {type(config).__name__}, and should hold an object")
        return config

    @cached_property
    def weights(self) -> TensorFile:
        """`adapter_model.safetensors`.

        Raises:
            ModelError: it is missing, cut short, or no safetensors file.
        """
        return TensorFile(self.path / WEIGHTS_FILE)

    @property
    def scale(self) -> float:
        """The factor of B·A: alpha / r, or alpha / √r for a rank-stabilized adapter (arXiv 2312.03732)."""
        rank, alpha = int(self.config["r"]), float(self.config["lora_alpha"])
        return alpha / math.sqrt(rank) if self.config.get("use_rslora") else alpha / rank

    @property
    def target_modules(self) -> list[str]:
        """What is adapted, as the configuration names it: ends of module names, or one pattern."""
        targets = self.config.get("target_modules") or []
        return [targets] if isinstance(targets, str) else sorted(targets)

    def parts(self) -> dict[str, dict[str, str]]:
        """The tensors of each adapted module, `{"model.layers.0.mlp.up_proj": {"A": key, "B": key}}`."""
        found: defaultdict[str, dict[str, str]] = defaultdict(dict)
        for key in self.weights.entries:
            if match := _KEY.fullmatch(key):
                found[match["module"]][match["side"]] = key
        return dict(found)

    def unexpected(self) -> list[str]:
        """Tensors that are no half of a LoRA pair."""
        return [key for key in self.weights.entries if not _KEY.fullmatch(key)]

    def adapts(self, module: str) -> bool:
        """Whether the configuration says that a module of the base model is adapted, by PEFT's own rule."""
        targets = self.config.get("target_modules") or []
        if targets == "all-linear":
            return module != "lm_head"
        if isinstance(targets, str):
            return re.fullmatch(targets, module) is not None
        return any(module == target or module.endswith(f".{target}") for target in targets)


def matrices(base: ModelFolder) -> dict[str, tuple[int, int]]:
    """(out, in) of every matrix of a base model, by its module's name; read from the headers of its weight files.

    Raises:
        ModelError: a weight file cannot be read.
    """
    entries = {name: entry for file in base.weight_files for name, entry in TensorFile(file).entries.items()}
    found = {
        name.removesuffix(".weight"): (entry.shape[0], entry.shape[1])
        for name, entry in entries.items()
        if name.endswith(".weight") and len(entry.shape) == 2
    }
    embedding = found.pop("model.embed_tokens", None)  # a table, not a linear; LoRA on it has keys of its own
    if embedding is not None and "lm_head" not in found:
        found["lm_head"] = embedding  # tied: one tensor, stored under one name
    return found


def require_mergeable(adapter: AdapterFolder, modules: Sequence[str], base: ModelFolder) -> None:
    """Make sure that W + scale·B·A is all that this adapter does.

    Raises:
        ModelError: it is of a kind that is not merged here; names the setting and what can.
    """
    config = adapter.config
    for setting in ("use_dora", "fan_in_fan_out", "rank_pattern", "alpha_pattern", "modules_to_save"):
        if config.get(setting):
            raise ModelError(
                f"{CONFIG_FILE} has {setting} = {config[setting]!r}, which is not merged here: use peft's "
                "merge_and_unload, or serve the adapter as it is"
            )
    stored = {name for file in base.weight_files for name in TensorFile(file).entries}
    tied = [module for module in modules if f"{module}.weight" not in stored]
    if tied:
        raise ModelError(
            f"{tied[0]} is adapted, and {base.name} has no weights of its own for it (they are tied to the "
            "embedding's): merged, they would change that too. Serve the adapter as it is"
        )
