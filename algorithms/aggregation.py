"""Means out of a loss that is a sum.

Providers add the loss up over tokens, datums and requests until `optim_step`. A mean is had by scaling what each datum
brings, with counts taken over the whole optimizer step, after filtering: N trained tokens in B sequences, n_i in the
i-th. Counting per request instead would weigh a token by the company it was posted in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from algorithms.datums import Datum, trained_tokens

Aggregation = Literal["sum", "token_mean", "sequence_mean", "constant"]


def aggregation_scales(
    lengths: Sequence[int], aggregation: Aggregation, *, constant_length: int | None = None
) -> list[float]:
    """One factor per sequence of an optimizer step.

    Args:
        lengths: the trained tokens n_i of each of the B sequences.
        aggregation: "sum" → 1; "token_mean" → 1/N; "sequence_mean" → 1/(B·n_i); "constant" → 1/(B·L).
        constant_length: L in tokens, for "constant" only: the same divisor whatever was sampled (arXiv 2503.20783).

    Raises:
        ValueError: an unknown aggregation, a length below 1, or "constant" without L.
    """
    if aggregation not in get_args(Aggregation):
        raise ValueError(f"aggregation {aggregation!r} is unknown: use one of {', '.join(get_args(Aggregation))}")
    if any(length <= 0 for length in lengths):
        raise ValueError(f"a sequence of the step has {min(lengths)} trained tokens: each needs at least one")
    if not lengths:
        return []
    batch, tokens = len(lengths), sum(lengths)
    match aggregation:
        case "sum":
            return [1.0] * batch
        case "token_mean":
            return [1.0 / tokens] * batch
        case "sequence_mean":
            return [1.0 / (batch * length) for length in lengths]
    if constant_length is None or constant_length <= 0:
        raise ValueError(
            f"aggregation 'constant' needs constant_length in tokens (max_tokens, say), got {constant_length}"
        )
    return [1.0 / (batch * constant_length)] * batch


def scale_data(
    data: Sequence[Datum],
    aggregation: Aggregation,
    *,
    constant_length: int | None = None,
    field: Literal["advantages", "weights"] = "advantages",
) -> list[Datum]:
    """The datums of a whole optimizer step, with `advantages` (or `weights`) scaled so that the sum becomes a mean.

    Scale advantages where the loss is linear in them, weights for `cross_entropy`. The given datums are left alone.

    Raises:
        ValueError: as `aggregation_scales`, or a datum without `field`.
    """
    scales = aggregation_scales([trained_tokens(datum) for datum in data], aggregation, constant_length=constant_length)
    return [_scaled(datum, field, scale) for datum, scale in zip(data, scales, strict=True)]


def _scaled(datum: Datum, field: str, scale: float) -> Datum:
    inputs = datum["loss_inputs"]
    if field not in inputs:
        raise ValueError(f"the datum has no {field} to scale; its loss inputs: {', '.join(sorted(inputs))}")
    scaled = {**inputs[field], "values": [value * scale for value in inputs[field]["values"]]}
    return {**datum, "loss_inputs": {**inputs, field: scaled}}
