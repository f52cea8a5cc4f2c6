"""Datums: one training example as the wire carries it, built from token ids and numbers.

A completion of n tokens after a prompt of p is fed to the model as p + n − 1 inputs, each with the token that follows
it as target. The completion's n targets therefore sit at the end, behind p − 1 prompt positions that are never trained
and are filled with zeros. Everything here is plain lists, so that a datum can be read, compared and sent as it is.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

Tensor = dict[str, Any]
Datum = dict[str, Any]

_CONVERT: dict[str, Callable[[Any], int | float]] = {"int64": operator.index, "float32": float}


def tensor(dtype: str, values: Sequence[Any]) -> Tensor:
    """The wire's dense tensor `{"dtype", "shape", "values"}`.

    Args:
        dtype: "int64" or "float32".
        values: N numbers, or N rows of K numbers each; rows are laid out one after another.

    Raises:
        ValueError: an unknown dtype, rows of unequal length, a number that does not fit the dtype or is not finite.
    """
    if dtype not in _CONVERT:
        raise ValueError(f"tensor dtype {dtype!r} is unknown: use 'int64' or 'float32'")
    shape = [len(values)]
    if len(values) and isinstance(values[0], Sequence):
        widths = sorted({len(row) for row in values})
        if len(widths) > 1:
            raise ValueError(f"tensor rows must have one length, these have {widths}")
        shape, values = [len(values), widths[0]], [value for row in values for value in row]
    try:
        flat = list(map(_CONVERT[dtype], values))
    except (TypeError, ValueError) as error:
        raise ValueError(f"tensor of {dtype}: {error}") from None
    # One NaN or infinity makes the sum non-finite, which is far cheaper to see than every value by itself.
    if dtype == "float32" and not math.isfinite(sum(flat)):
        position = next((i for i, value in enumerate(flat) if not math.isfinite(value)), None)
        raise ValueError(f"tensor of float32: value {position} is not finite; JSON and gradients have no use for it")
    return {"dtype": dtype, "shape": shape, "values": flat}


def sft_datum(prompt_tokens: Sequence[int], completion_tokens: Sequence[int]) -> Datum:
    """A `cross_entropy` datum: weight 1 on each of the completion's n tokens, 0 on the prompt's.

    Raises:
        ValueError: an empty prompt or an empty completion.
    """
    inputs, targets, pad = _shift(prompt_tokens, completion_tokens, "completion_tokens")
    return {
        "input": {"token_ids": inputs},
        "loss_inputs": {
            "target_tokens": tensor("int64", targets),
            "weights": _padded(pad, [1.0] * len(completion_tokens)),
        },
    }


def rl_datum(
    prompt_tokens: Sequence[int],
    sampled_tokens: Sequence[int],
    sampled_logprobs: Sequence[float],
    advantage: float | Sequence[float],
    *,
    clip_low: float | None = None,
    clip_high: float | None = None,
) -> Datum:
    """A datum of the policy-gradient losses: targets, weights, the sampler's log-probs and advantages.

    Args:
        prompt_tokens: p ≥ 1 token ids.
        sampled_tokens: n ≥ 1 token ids, the stop token among them where there was one.
        sampled_logprobs: n natural log-probs at temperature 1, as the sampler returned them.
        advantage: one number for the whole completion, or n numbers.
        clip_low: lower bound of the ratio, sent as a tensor on the datum (tinker's way; elsewhere it is `loss_config`).
        clip_high: upper bound of the ratio, likewise.

    Raises:
        ValueError: an empty prompt or completion, or a list whose length is not n (both lengths are named).
    """
    inputs, targets, pad = _shift(prompt_tokens, sampled_tokens, "sampled_tokens")
    count = len(sampled_tokens)
    per_token = [float(advantage)] * count if isinstance(advantage, int | float) else list(advantage)
    for name, values in (("sampled_logprobs", sampled_logprobs), ("advantage", per_token)):
        if len(values) != count:
            raise ValueError(f"{name} has {len(values)} entries, sampled_tokens has {count}: one is needed per token")
    loss_inputs = {
        "target_tokens": tensor("int64", targets),
        "weights": _padded(pad, [1.0] * count),
        "logprobs": _padded(pad, sampled_logprobs),
        "advantages": _padded(pad, per_token),
    }
    for name, bound in (("clip_low_threshold", clip_low), ("clip_high_threshold", clip_high)):
        if bound is not None:
            loss_inputs[name] = _padded(pad, [bound] * count)
    return {"input": {"token_ids": inputs}, "loss_inputs": loss_inputs}


def trained_tokens(datum: Datum) -> int:
    """How many positions of a datum are trained: those whose weight is not 0 (in any of its K columns)."""
    shape, values = datum["loss_inputs"]["weights"]["shape"], datum["loss_inputs"]["weights"]["values"]
    if len(shape) == 1:
        return len(values) - int(values.count(0.0))
    return sum(any(values[start : start + shape[1]]) for start in range(0, len(values), shape[1]))


def _shift(prompt: Sequence[int], completion: Sequence[int], name: str) -> tuple[list[int], list[int], int]:
    full = [*prompt, *completion]
    if not prompt:
        # Without a prompt token the pad would be −1 and every loss input would silently sit one position early.
        raise ValueError(
            "prompt_tokens is empty: the first completion token needs a token before it to be predicted from"
        )
    if len(full) < 2:
        raise ValueError(f"prompt_tokens and {name} hold {len(full)} token together: at least two are needed")
    if not completion:
        raise ValueError(f"{name} is empty: there is nothing to train")
    return full[:-1], full[1:], len(prompt) - 1


def _padded(pad: int, values: Sequence[float]) -> Tensor:
    return tensor("float32", [0.0] * pad + list(values))
