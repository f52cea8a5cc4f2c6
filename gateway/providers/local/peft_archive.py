"""Adapters as PEFT directories in a tar.gz: what `export_lora` writes and a run may start from.

The archive of the same weights is the same bytes: no times, no owners, a fixed order.
"""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from gateway.providers.local.base_weights import module_path
from gateway.providers.local.errors import EngineError
from gateway.providers.local.files import write_durably
from gateway.providers.local.lora import LINEARS, LoraLayout, LoraTensors

CONFIG_FILE, WEIGHTS_FILE = "adapter_config.json", "adapter_model.safetensors"


def write_archive(path: Path, parameters: LoraTensors, model: str) -> None:
    """Write the adapter; complete and on disk when this returns."""
    members = {
        CONFIG_FILE: json.dumps(_adapter_config(parameters.layout, model), indent=2, sort_keys=True).encode() + b"\n",
        WEIGHTS_FILE: save(dict(_peft_named(parameters)), {"format": "pt"}),
    }
    content = _tar_gz(members)

    def write(file: Path) -> None:
        file.write_bytes(content)

    write_durably(path, write)


def read_archive(path: Path, layout: LoraLayout) -> LoraTensors:
    """The weights of an archive, for a run of `layout`.

    Raises:
        EngineError: `invalid_artifact` when it is no PEFT archive, or an adapter of another rank, alpha or shape.
    """
    try:
        with tarfile.open(path, "r:gz") as archive:
            config = json.loads(_member(archive, CONFIG_FILE))
            tensors = load(_member(archive, WEIGHTS_FILE))
    except (tarfile.TarError, OSError, KeyError, ValueError, SafetensorError) as error:
        raise EngineError("invalid_artifact", f"{path.name} cannot be read as a PEFT archive: {error}") from error
    for key, wanted in (("r", layout.rank), ("lora_alpha", layout.alpha)):
        if config.get(key) != wanted:
            raise EngineError(
                "invalid_artifact", f"the adapter has {key} = {config.get(key)}, the run asks for {wanted}"
            )
    parameters = LoraTensors(layout)
    for key, view in _peft_named(parameters):
        if key not in tensors or tensors[key].shape != view.shape:
            raise EngineError(
                "invalid_artifact", f"{path.name}: {key} is missing or is not of shape {list(view.shape)}"
            )
        view.copy_(tensors[key])
    return parameters


def _adapter_config(layout: LoraLayout, model: str) -> dict[str, Any]:
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": model,
        "r": layout.rank,
        "lora_alpha": layout.alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": sorted(LINEARS),
        "fan_in_fan_out": False,
        "inference_mode": True,
        "use_rslora": False,
        "use_dora": False,
        "modules_to_save": None,
    }


def _peft_named(parameters: LoraTensors) -> list[tuple[str, Tensor]]:
    named = []
    for layer in range(parameters.layout.shapes.layers):
        for linear in LINEARS:
            prefix = f"base_model.model.model.layers.{layer}.{module_path(linear)}"
            named.append((f"{prefix}.lora_A.weight", parameters.a(layer, linear)))
            named.append((f"{prefix}.lora_B.weight", parameters.b(layer, linear)))
    return named


def _tar_gz(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    # Level 1: weights hardly shrink at any level.
    with (
        gzip.GzipFile(filename="", mode="wb", compresslevel=1, fileobj=buffer, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.USTAR_FORMAT) as archive,
    ):
        for name, content in sorted(members.items()):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            entry.mode = 0o644
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    """A member read in memory, wherever in the archive its folder is; nothing is unpacked to disk."""
    for entry in archive.getmembers():
        if Path(entry.name).name == name and (stream := archive.extractfile(entry)):
            return stream.read()
    raise KeyError(name)
