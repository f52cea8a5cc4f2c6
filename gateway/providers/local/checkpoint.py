"""A run's state as ONE safetensors file: weights, optimizer, and the gradient gathered so far."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from gateway.providers.files import METADATA_KEY, write_durably
from gateway.providers.local.base_weights import BaseWeights
from gateway.providers.local.errors import EngineError
from gateway.providers.local.lora import LoraLayout, LoraTensors
from gateway.providers.local.optimizer import Moments

FORMAT = "whitney-lora-state/1"


@dataclass
class TrainingState:
    """Everything the next step depends on."""

    parameters: LoraTensors
    moments: Moments | None = None
    gradient: LoraTensors | None = None


def save_state(path: Path, state: TrainingState, base: BaseWeights) -> None:
    """Write `state`; complete and on disk when this returns."""
    layout = state.parameters.layout
    metadata = {
        "format": FORMAT,
        "model": base.name,
        "base_sha256": base.sha256,
        "role": _role(layout),
        "rank": layout.rank,
        "alpha": layout.alpha,
        "step": state.moments.step if state.moments else 0,
    }
    parts = {"parameters": state.parameters}
    if state.moments is not None:
        parts["mean"] = LoraTensors(layout, state.moments.mean)
        parts["square"] = LoraTensors(layout, state.moments.square)
    if state.gradient is not None:
        parts["gradient"] = state.gradient
    tensors = {f"{part}.{name}": view for part, lora in parts.items() for name, view in lora.named()}
    write_durably(path, lambda file: save_file(tensors, file, {METADATA_KEY: json.dumps(metadata, sort_keys=True)}))


def load_state(path: Path, layout: LoraLayout, base: BaseWeights, *, with_optimizer: bool) -> TrainingState:
    """Read a state for a run of `layout` on `base`.

    Without the optimizer only the weights are taken: moments and gathered gradient start afresh.

    Raises:
        EngineError: `invalid_state` when the file is no state, or one of another model, role, rank or alpha.
    """
    try:
        with safe_open(path, framework="pt") as file:
            _check(path.name, json.loads((file.metadata() or {}).get(METADATA_KEY, "{}")), layout, base)
            step = json.loads(file.metadata()[METADATA_KEY])["step"]
            names = set(file.keys())

            def read(part: str) -> LoraTensors | None:
                lora = LoraTensors(layout)
                if not all(f"{part}.{name}" in names for name, _ in lora.named()):
                    return None
                for name, view in lora.named():
                    view.copy_(file.get_tensor(f"{part}.{name}"))
                return lora

            parameters = read("parameters")
            rest = [read(part) if with_optimizer else None for part in ("mean", "square", "gradient")]
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        # Metadata of another form, tensors of another shape: whatever a damaged file can lead to.
        why = f"{type(error).__name__}: {error}"
        raise EngineError("invalid_state", f"{path.name} cannot be read as a state: {why}") from error
    if parameters is None:
        raise EngineError("invalid_state", f"{path.name} lacks some of the adapter's weights")
    mean, square, gradient = rest
    moments = Moments(mean.flat, square.flat, step) if mean and square else None
    return TrainingState(parameters, moments, gradient)


def _check(name: str, metadata: dict[str, Any], layout: LoraLayout, base: BaseWeights) -> None:
    if metadata.get("format") != FORMAT:
        raise EngineError("invalid_state", f"{name} is not a state of this engine (format {metadata.get('format')!r})")
    if (role := metadata.get("role", "policy")) != _role(layout):  # states of before there were critics say none
        raise EngineError("invalid_state", f"the state is a {role}'s, the run asks for the role {_role(layout)}")
    for key, wanted in (("rank", layout.rank), ("alpha", layout.alpha)):
        if metadata[key] != wanted:
            raise EngineError(
                "invalid_state", f"the state was trained with lora.{key} = {metadata[key]}, the run asks for {wanted}"
            )
    if metadata["base_sha256"] != base.sha256:
        raise EngineError(
            "invalid_state",
            f"the state was trained on model {metadata['model']!r}, whose weights are not those of {base.name!r}",
        )


def _role(layout: LoraLayout) -> str:
    return "critic" if layout.value_head else "policy"


def save_weights(path: Path, parameters: torch.Tensor) -> None:
    """A bare vector, for a snapshot that makes room in memory."""
    save_file({"parameters": parameters}, path)


def load_weights(path: Path) -> torch.Tensor:
    """What `save_weights` wrote."""
    with safe_open(path, framework="pt") as file:
        weights: torch.Tensor = file.get_tensor("parameters").clone()
    return weights
