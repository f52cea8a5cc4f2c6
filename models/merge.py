"""An adapter merged into its base: an ordinary Hugging Face folder, for tools that take no adapters. Without torch."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from models.adapter import AdapterFolder, require_mergeable
from models.folder import ModelFolder
from models.tensor_file import TensorFile


def merge(base: ModelFolder, adapter: AdapterFolder, folder: Path) -> int:
    """Write base + adapter into `folder`, which must not exist; the number of matrices that were changed.

    W + scale·B·A is computed in fp32 and stored in the type that W has in the base. Everything else of the base's
    folder (tokenizer, templates, licence) is copied.

    Raises:
        ModelError: an adapter that does something else than add B·A, or is not of this base.
        OSError: the folder cannot be written.
    """
    parts = adapter.parts()
    require_mergeable(adapter, list(parts), base)
    shutil.copytree(base.path, folder)
    for file in base.weight_files:
        copy = TensorFile(folder / file.relative_to(base.path))
        for module, keys in parts.items():
            name = f"{module}.weight"
            if name in copy.entries:
                down, up = adapter.weights.floats(keys["A"]), adapter.weights.floats(keys["B"])
                copy.overwrite(name, copy.floats(name) + np.float32(adapter.scale) * (up @ down))
    return len(parts)


def set_stop_tokens(folder: Path, token_ids: Sequence[int]) -> None:
    """Have engines end a reply at these tokens too; transformers and vLLM read them in `generation_config.json`."""
    file = folder / "generation_config.json"
    config = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    known = config.get("eos_token_id", [])
    tokens = list(dict.fromkeys([*token_ids, *(known if isinstance(known, list) else [known])]))
    file.write_text(json.dumps({**config, "eos_token_id": tokens}, indent=2) + "\n", encoding="utf-8")
