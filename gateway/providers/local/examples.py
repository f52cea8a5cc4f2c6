"""Datums off the wire as the numbers that training needs, with every mistake named by its place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gateway.providers.local.errors import EngineError
from gateway.providers.local.losses import CLIP_TENSOR_LOSSES

_POLICY_INPUTS = ("logprobs", "advantages")
_CLIP_INPUTS = ("clip_low_threshold", "clip_high_threshold")


@dataclass(frozen=True)
class Example:
    """One datum, reduced to its trained positions.

    `tokens` is the input up to the last trained position (what follows influences nothing); `length` is the datum's
    own. `positions` [n] are the trained ones, ascending. `targets`, `weights` are [n, K]: K = 1 but for soft targets.
    `inputs` holds the policy losses' per-token tensors, [n] in fp64.
    """

    tokens: list[int]
    length: int
    positions: Tensor
    targets: Tensor
    weights: Tensor
    inputs: dict[str, Tensor]
    soft: bool


def read_examples(payload: Mapping[str, Any], vocabulary: int, context_tokens: int) -> list[Example]:
    """The datums of a `forward` or `forward_backward` payload.

    Raises:
        EngineError: `invalid_input`, naming datum and field; `context_exceeded`, naming both lengths.
    """
    loss, config = payload["loss_function"], payload.get("loss_config") or {}
    return [
        _read(f"data[{index}]", datum, (loss, config), vocabulary=vocabulary, context_tokens=context_tokens)
        for index, datum in enumerate(payload["data"])
    ]


def check_tokens(where: str, tokens: list[int], vocabulary: int, context_tokens: int) -> None:
    """Refuse ids that are not the model's and sequences beyond its context."""
    if len(tokens) > context_tokens:
        raise EngineError(
            "context_exceeded", f"{where} has {len(tokens)} tokens, the model's context holds {context_tokens}"
        )
    if max(tokens) >= vocabulary:
        place = next(index for index, token in enumerate(tokens) if token >= vocabulary)
        raise EngineError("invalid_input", f"{where}[{place}] is not in the model's vocabulary of {vocabulary} tokens")


def _read(
    where: str,
    datum: Mapping[str, Any],
    loss_and_config: tuple[str, Mapping[str, float]],
    *,
    vocabulary: int,
    context_tokens: int,
) -> Example:
    loss, config = loss_and_config
    tokens: list[int] = datum["input"]["token_ids"]
    check_tokens(f"{where}.input.token_ids", tokens, vocabulary, context_tokens)
    given = datum["loss_inputs"]
    targets = _tensor(where, given, "target_tokens", "int64", len(tokens))
    weights = _tensor(where, given, "weights", "float32", len(tokens))
    if targets.shape != weights.shape:
        raise EngineError(
            "invalid_input",
            f"{where}.loss_inputs: target_tokens has shape {list(targets.shape)}, weights has {list(weights.shape)}",
        )
    soft = targets.dim() == 2
    if soft and loss != "cross_entropy":
        raise EngineError("invalid_input", f"{where}.loss_inputs.target_tokens is 2-D, which {loss} does not take")
    targets, weights = targets.reshape(len(tokens), -1), weights.reshape(len(tokens), -1)
    positions = (weights != 0).any(-1).nonzero()[:, 0]
    targets = targets[positions]
    if targets.numel() and not 0 <= int(targets.min()) <= int(targets.max()) < vocabulary:
        raise EngineError(
            "invalid_input", f"{where}.loss_inputs.target_tokens has an id outside the vocabulary of {vocabulary}"
        )
    return Example(
        tokens=tokens[: int(positions[-1]) + 1] if len(positions) else [],
        length=len(tokens),
        positions=positions,
        targets=targets,
        weights=weights[positions],
        inputs={name: values[positions] for name, values in _policy_inputs(where, given, loss, config, len(tokens))},
        soft=soft,
    )


def _policy_inputs(
    where: str, given: Mapping[str, Any], loss: str, config: Mapping[str, float], length: int
) -> list[tuple[str, Tensor]]:
    if loss == "cross_entropy":
        return []
    wanted = list(_POLICY_INPUTS)
    if loss in CLIP_TENSOR_LOSSES:
        for name in _CLIP_INPUTS:
            if name in given and name in config:
                raise EngineError("invalid_input", f"{name} is given both in {where}.loss_inputs and in loss_config")
        wanted += [name for name in _CLIP_INPUTS if name in given]
    tensors = [(name, _tensor(where, given, name, "float32", length)) for name in wanted]
    for name, values in tensors:
        if values.dim() != 1:
            raise EngineError("invalid_input", f"{where}.loss_inputs.{name} is {values.dim()}-D, it must be 1-D")
    return tensors


def _tensor(where: str, given: Mapping[str, Any], name: str, dtype: str, length: int) -> Tensor:
    """A loss input: int64 as sent, float32 widened to fp64 for the loss."""
    field = f"{where}.loss_inputs.{name}"
    if name not in given:
        raise EngineError("invalid_input", f"{field} is missing; given: {sorted(given)}")
    sent = given[name]
    if sent["dtype"] != dtype:
        raise EngineError("invalid_input", f"{field} has dtype {sent['dtype']}, it must be {dtype}")
    if sent["shape"][0] != length:
        raise EngineError("invalid_input", f"{field} has {sent['shape'][0]} rows, input.token_ids has {length}")
    values = torch.tensor(sent["values"], dtype=torch.int64 if dtype == "int64" else torch.float32)
    values = values.reshape(sent["shape"])
    return values if dtype == "int64" else values.double()
