"""Any differentiable loss over log-probs, by way of a loss every provider has.

`forward` answers the log-probs lp, the caller computes its loss C(lp) and g = dC/dlp, and `forward_backward` with
`cross_entropy` and weights −g has the gradient −Σ w·dlp = Σ g·dlp = dC: exactly C's, where the provider's reduction is
a plain sum. The loss that `forward_backward` reports is −Σ w·lp and means nothing; report C.
"""

from __future__ import annotations

from collections.abc import Sequence

from algorithms.datums import Datum, tensor


def at_trained(datum: Datum, values: Sequence[float]) -> list[float]:
    """The n numbers at a datum's trained positions (those of weight ≠ 0).

    Args:
        datum: one with one-dimensional weights.
        values: one number per position, as `forward` reports log-probs, or the n of the trained positions already, as
            a slice of a sampler's `logprobs` has them.

    Raises:
        ValueError: another number of values, or soft targets.
    """
    weights = datum["loss_inputs"]["weights"]
    if len(weights["shape"]) != 1:
        raise ValueError(f"weights has shape {weights['shape']}: gradient weights need one target per position")
    trained = [position for position, weight in enumerate(weights["values"]) if weight]
    if len(values) == len(trained):
        return list(values)
    if len(values) != len(weights["values"]):
        raise ValueError(
            f"{len(values)} values for a datum of {len(weights['values'])} positions, {len(trained)} of them trained: "
            "one is needed for each, or for each trained one"
        )
    return [values[position] for position in trained]


def weighted_data(data: Sequence[Datum], gradients: Sequence[Sequence[float]]) -> list[Datum]:
    """`cross_entropy` datums whose weights are −g; a datum without a gradient is dropped.

    Args:
        data: the B datums that `forward` was asked about; the weights there only say which positions are trained.
        gradients: B lists of dC/dlp, each as `at_trained` takes them. What stands at an untrained position is ignored.

    Returns:
        at most B datums with `target_tokens` and `weights`; none when every gradient is 0.

    Raises:
        ValueError: numbers that do not pair, or a gradient that is not finite.
    """
    if len(data) != len(gradients):
        raise ValueError(f"data has {len(data)} datums, gradients has {len(gradients)} lists: each datum needs one")
    weighted = []
    for datum, gradient in zip(data, gradients, strict=True):
        picked = at_trained(datum, gradient)
        if any(picked):
            weighted.append(_weighted(datum, picked))
    return weighted


def _weighted(datum: Datum, gradient: Sequence[float]) -> Datum:
    inputs = datum["loss_inputs"]
    following = iter(gradient)
    weights = [-next(following) if weight else 0.0 for weight in inputs["weights"]["values"]]
    return {
        "input": datum["input"],
        "loss_inputs": {"target_tokens": inputs["target_tokens"], "weights": tensor("float32", weights)},
    }
