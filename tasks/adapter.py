"""An exported adapter is looked at before anybody calls it finished: is it what was trained, and is all of it there?

Every check is one that a broken export could fail without anything else noticing: PEFT loads an adapter with a missing
pair, or one of zeros, without a word.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from models import ModelError, ModelFolder
from models.adapter import CONFIG_FILE, WEIGHTS_FILE, AdapterFolder, matrices
from models.tensor_file import FLOATING

NAMED = 5
"""Faults that a message names; of more it says how many there are."""


class AdapterError(ValueError):
    """An adapter that is not what the run trained; the message names the tensors or settings that are wrong."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What the run says of its adapter. `base` is the base model's folder, None where it is not on this machine."""

    model: str
    rank: int
    alpha: float
    base: ModelFolder | None


@dataclass(frozen=True, slots=True)
class AdapterFacts:
    """What was found. `trained`: some B is not zero, so that it changes something. `unchecked` says what was not."""

    rank: int
    alpha: float
    target_modules: list[str]
    modules: int
    parameters: int
    dtypes: list[str]
    trained: bool
    unchecked: list[str]


def check_adapter(adapter: AdapterFolder, expected: Expected) -> AdapterFacts:
    """Hold an adapter against what the run says of it, and against the base model where that is on this machine.

    Raises:
        AdapterError: a file is missing or damaged, the configuration is another run's, or a tensor is missing,
            unexpected, misshapen, or not finite.
    """
    try:
        wrong = [*_wrong_config(adapter, expected), *_wrong_tensors(adapter, expected)]
        if not wrong:
            wrong = list(_not_finite(adapter))
        if not wrong:
            return _facts(adapter, expected)
    except ModelError as error:
        raise AdapterError(f"the exported adapter cannot be used: {error}") from error
    more = f"; and {len(wrong) - NAMED} more" if len(wrong) > NAMED else ""
    raise AdapterError(f"the exported adapter is not what was trained: {'; '.join(wrong[:NAMED])}{more}")


def _wrong_config(adapter: AdapterFolder, expected: Expected) -> Iterator[str]:
    config = adapter.config
    for key, wanted in (("peft_type", "LORA"), ("r", expected.rank), ("lora_alpha", expected.alpha)):
        if config.get(key) != wanted:
            yield f"{CONFIG_FILE} has {key} = {config.get(key)!r}, the run has {wanted!r}"
    if not adapter.target_modules:
        yield f"{CONFIG_FILE} names no target_modules"
    # A provider may know the model by another name than the one it is asked for by; ours does not.
    if expected.base is not None and not _same_model(adapter, expected):
        yield (
            f"{CONFIG_FILE} has base_model_name_or_path = {config.get('base_model_name_or_path')!r}, the run trained "
            f"{expected.model!r}"
        )


def _same_model(adapter: AdapterFolder, expected: Expected) -> bool:
    named = str(adapter.config.get("base_model_name_or_path", ""))
    return named.rsplit("/", 1)[-1].lower() == expected.model.rsplit("/", 1)[-1].lower()


def _wrong_tensors(adapter: AdapterFolder, expected: Expected) -> Iterator[str]:
    for key in adapter.unexpected():
        yield f"{WEIGHTS_FILE} has {key}, which is no LoRA matrix"
    parts, entries = adapter.parts(), adapter.weights.entries
    if not parts:
        yield f"{WEIGHTS_FILE} holds no LoRA matrix"
        return
    base = None if expected.base is None else matrices(expected.base)
    for module in sorted((base or {}).keys() - parts.keys()):
        if adapter.adapts(module):
            yield f"{WEIGHTS_FILE} has nothing for {module}, which is a target module"
    for module, keys in parts.items():
        shape = None if base is None else base.get(module)
        if not adapter.adapts(module):
            yield f"{WEIGHTS_FILE} adapts {module}, which is no target module"
        elif base is not None and shape is None:
            yield f"{WEIGHTS_FILE} adapts {module}, which the model {expected.model!r} does not have"
        for side in "AB":
            if side not in keys:
                yield f"{WEIGHTS_FILE} has no lora_{side} of {module}"
            elif wrong := _wrong_shape(side, entries[keys[side]].shape, expected.rank, shape):
                yield f"{keys[side]} {wrong}"
    for key, entry in entries.items():
        if entry.dtype not in FLOATING:
            yield f"{key} is of type {entry.dtype}; weights are of {', '.join(FLOATING)}"


def _wrong_shape(side: str, found: tuple[int, ...], rank: int, module: tuple[int, int] | None) -> str:
    """What is wrong with a shape; "" when it is right. Without the base's, that it has the run's rank is all we know.

    A is [rank, in] and B is [out, rank]; mixtures of experts have a dimension more in front.
    """
    if module is not None:
        wanted = (rank, module[1]) if side == "A" else (module[0], rank)
        return "" if found == wanted else f"has shape {list(found)}, must have {list(wanted)}"
    place = -2 if side == "A" else -1
    return "" if len(found) >= 2 and found[place] == rank else f"has shape {list(found)}, and the run's rank is {rank}"


def _not_finite(adapter: AdapterFolder) -> Iterator[str]:
    for key in adapter.weights.entries:
        values = adapter.weights.floats(key)
        if count := int(values.size - np.isfinite(values).sum()):
            yield f"{key} has {count} of {values.size} numbers that are NaN or infinite"


def _facts(adapter: AdapterFolder, expected: Expected) -> AdapterFacts:
    parts, entries = adapter.parts(), adapter.weights.entries
    unchecked = []
    if expected.base is None:
        unchecked.append(
            f"shapes and completeness against the base model: {expected.model} is not on the machine it was checked on"
        )
        if not _same_model(adapter, expected):
            named = adapter.config.get("base_model_name_or_path")
            unchecked.append(f"whether {named!r}, which the adapter names as its base, is {expected.model!r}")
    return AdapterFacts(
        rank=expected.rank,
        alpha=expected.alpha,
        target_modules=adapter.target_modules,
        modules=len(parts),
        parameters=sum(int(np.prod(entry.shape)) for entry in entries.values()),
        dtypes=sorted({entry.dtype for entry in entries.values()}),
        trained=any(adapter.weights.floats(keys["B"]).any() for keys in parts.values()),
        unchecked=unchecked,
    )
