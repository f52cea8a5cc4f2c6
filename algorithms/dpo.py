"""DPO: direct preference optimization.

Contract: pairs of a chosen and a rejected answer to one prompt, and a frozen reference (the *initial* weights, also
    after a resume); no sampling, no reward.
Maths: with h = (π_c − ref_c) − (π_r − ref_r) of whole answers' summed log-probs, minimise −log σ(β·h), the mean over
    the pairs of a step. Its derivative by every token's log-prob is ∓β·σ(−β·h)/B, and goes out as gradient weights.
Loss per provider: `forward`, then `cross_entropy` with weights −g, empty loss_config, on modal, tinker and local alike.
Fails closed when: the provider lacks `forward` or `cross_entropy`, or its cross_entropy is not a plain sum
    (`loss_reduction`); log-probs do not pair with their answer's tokens. Pairs with a bad row are dropped and counted.
Deviates from the paper by: nothing; `label_smoothing` ε > 0 (an option) is conservative DPO for noisy labels.
Paper: arXiv 2305.18290; label smoothing: Mitchell, "A note on DPO with noisy preferences" (2023).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from algorithms.datums import Datum, trained_tokens
from algorithms.gradient_weights import at_trained, weighted_data
from algorithms.preference_loss import dpo_loss
from algorithms.preferences import Pair, Row, pair_data, pair_up

__all__ = ["LOSS_FUNCTION", "DpoStep", "Pair", "Row", "dpo_loss", "dpo_step", "pair_data", "pair_up"]

LOSS_FUNCTION = "cross_entropy"


class DpoStep(NamedTuple):
    """What to send; and `loss`, `margin`, `accuracy`, `chosen_logps`, `rejected_logps`, means over the step's pairs."""

    data: list[Datum]
    metrics: dict[str, float]


def dpo_step(
    pairs: Sequence[Pair],
    policy_logprobs: Sequence[Sequence[float]],
    reference_logprobs: Sequence[Sequence[float]],
    *,
    beta: float,
    label_smoothing: float = 0.0,
) -> DpoStep:
    """The weighted `cross_entropy` datums of an optimizer step on B pairs, to be sent as they are.

    The log-probs are 2·B lists each, in `pair_data`'s order and of the lengths that `at_trained` takes.

    Raises:
        ValueError: no pair, lists that do not pair, or as `dpo_loss`.
    """
    data = pair_data(pairs)
    for name, lists in (("policy_logprobs", policy_logprobs), ("reference_logprobs", reference_logprobs)):
        if not data or len(lists) != len(data):
            raise ValueError(f"{name} has {len(lists)} lists for {len(pairs)} pairs: each of at least one needs two")
    policy = [math.fsum(at_trained(*one)) for one in zip(data, policy_logprobs, strict=True)]
    reference = [math.fsum(at_trained(*one)) for one in zip(data, reference_logprobs, strict=True)]
    chosen, rejected = policy[::2], policy[1::2]
    quadruples = zip(chosen, reference[::2], rejected, reference[1::2], strict=True)
    losses = [dpo_loss(*one, beta=beta, label_smoothing=label_smoothing) for one in quadruples]
    slopes = [sign * one.gradient / len(pairs) for one in losses for sign in (1.0, -1.0)]
    gradients = [[slope] * trained_tokens(datum) for datum, slope in zip(data, slopes, strict=True)]
    sums = {
        "loss": math.fsum(one.loss for one in losses),
        "margin": math.fsum(one.margin for one in losses),
        "accuracy": sum(one.margin > 0 for one in losses),
        "chosen_logps": math.fsum(chosen),
        "rejected_logps": math.fsum(rejected),
    }
    return DpoStep(weighted_data(data, gradients), {name: total / len(pairs) for name, total in sums.items()})
