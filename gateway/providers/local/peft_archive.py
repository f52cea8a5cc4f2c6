"""Adapters as PEFT directories in a tar.gz: what `export_lora` writes and a run may start from.

A critic's has one file more, `value_head.safetensors`, which PEFT passes over: `weight` [1, d_model] and `bias` [1] of
V = weight · (hidden state after the final norm) + bias.
"""

from __future__ import annotations

import json
import tarfile
import zlib
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from gateway.providers.files import read_members, write_archive
from gateway.providers.local.base_weights import module_path
from gateway.providers.local.errors import EngineError
from gateway.providers.local.lora import LINEARS, LoraLayout, LoraTensors

CONFIG_FILE, WEIGHTS_FILE = "adapter_config.json", "adapter_model.safetensors"
VALUE_HEAD_FILE = "value_head.safetensors"
_HEAD = "value_head."


def write_adapter(path: Path, parameters: LoraTensors, model: str) -> None:
    """Write the adapter; complete and on disk when this returns."""
    members = {
        CONFIG_FILE: json.dumps(_adapter_config(parameters.layout, model), indent=2, sort_keys=True).encode() + b"\n",
        WEIGHTS_FILE: save(dict(_peft_named(parameters)), {"format": "pt"}),
    }
    if parameters.layout.value_head:
        head = {key.removeprefix(_HEAD): view for key, view in _head_named(parameters)}
        members[VALUE_HEAD_FILE] = save(head, {"format": "pt"})
    write_archive(path, members)


def read_adapter(path: Path, layout: LoraLayout) -> LoraTensors:
    """The weights of an archive, for a run of `layout`. A critic that starts from a policy's adapter has a new head.

    Raises:
        EngineError: `invalid_artifact` when it is no PEFT archive, an adapter of another rank, alpha or shape, or a
            critic's for a policy.
    """
    try:
        config_file, weights_file = read_members(path, CONFIG_FILE, WEIGHTS_FILE)
        config, tensors, head = dict(json.loads(config_file)), load(weights_file), _read_head(path)
    except (tarfile.TarError, OSError, EOFError, zlib.error, KeyError, TypeError, ValueError, SafetensorError) as error:
        why = f"{type(error).__name__}: {error}"
        raise EngineError("invalid_artifact", f"{path.name} cannot be read as a PEFT archive: {why}") from error
    for key, wanted in (("r", layout.rank), ("lora_alpha", layout.alpha)):
        if config.get(key) != wanted:
            raise EngineError(
                "invalid_artifact", f"the adapter has {key} = {config.get(key)}, the run asks for {wanted}"
            )
    if head and not layout.value_head:
        raise EngineError("invalid_artifact", "the adapter is a critic's, the run asks for the role policy")
    parameters = LoraTensors(layout)
    wanted_tensors = _peft_named(parameters)
    if head:
        wanted_tensors += _head_named(parameters)
        tensors |= head
    for key, view in wanted_tensors:
        if key not in tensors or tensors[key].shape != view.shape:
            raise EngineError(
                "invalid_artifact", f"{path.name}: {key} is missing or is not of shape {list(view.shape)}"
            )
        view.copy_(tensors[key])
    return parameters


def _read_head(path: Path) -> dict[str, Tensor]:
    """A critic's value head under the names of `_head_named`; empty for a policy's adapter."""
    try:
        (content,) = read_members(path, VALUE_HEAD_FILE)
    except KeyError:
        return {}
    return {f"{_HEAD}{name}": tensor for name, tensor in load(content).items()}


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


def _head_named(parameters: LoraTensors) -> list[tuple[str, Tensor]]:
    return [(f"{_HEAD}weight", parameters.value_weight), (f"{_HEAD}bias", parameters.value_bias)]
