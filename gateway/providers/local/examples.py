"""Datums off the wire as the numbers that training needs.

The gateway has checked dtypes and shapes; what only the model can say — its vocabulary, its context — is checked here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gateway.losses import CLIP_KEYS, CLIP_TENSOR_LOSSES, CRITIC_LOSS
from gateway.providers.local.errors import EngineError

_POLICY_INPUTS = ("logprobs", "advantages")
_CRITIC_INPUTS = ("values", "returns")


@dataclass(frozen=True)
class Example:
    """One datum, reduced to its trained positions.

    `tokens` is the input up to the last trained position (what follows influences nothing); `length` is the datum's
    own. `positions` [n] are the trained ones, ascending. `targets`, `weights` are [n, K]: K = 1 but for soft targets;
    a critic's datum may go without targets, which then are 0. `inputs` holds the loss's other tensors, [n] in fp64.
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
    loss = payload["loss_function"]
    return [
        _read(f"data[{index}]", datum, loss, vocabulary=vocabulary, context_tokens=context_tokens)
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


def _read(where: str, datum: Mapping[str, Any], loss: str, *, vocabulary: int, context_tokens: int) -> Example:
    tokens: list[int] = datum["input"]["token_ids"]
    check_tokens(f"{where}.input.token_ids", tokens, vocabulary, context_tokens)
    given = datum["loss_inputs"]
    weights = _tensor(given["weights"])
    targets = _tensor(given["target_tokens"]) if "target_tokens" in given else weights.new_zeros(weights.shape).long()
    soft = targets.dim() == 2
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
        inputs={name: _tensor(given[name])[positions] for name in _per_token_inputs(loss, given)},
        soft=soft,
    )


def _per_token_inputs(loss: str, given: Mapping[str, Any]) -> list[str]:
    if loss == "cross_entropy":
        return []
    if loss == CRITIC_LOSS:
        return list(_CRITIC_INPUTS)
    bounds = CLIP_KEYS & given.keys() if loss in CLIP_TENSOR_LOSSES else set()
    return [*_POLICY_INPUTS, *sorted(bounds)]


def _tensor(sent: Mapping[str, Any]) -> Tensor:
    """A loss input: int64 as sent, float32 widened to fp64 for the loss."""
    dtype = torch.int64 if sent["dtype"] == "int64" else torch.float32
    values = torch.tensor(sent["values"], dtype=dtype).reshape(sent["shape"])
    return values if dtype == torch.int64 else values.double()
