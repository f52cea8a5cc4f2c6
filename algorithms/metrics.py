"""What a cycle did, in numbers: rewards, lengths, how completions ended, how far the trainer is from the sampler."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from algorithms.advantages import Reward, constant, is_scored
from algorithms.datums import Datum
from algorithms.kl import EXP_LIMIT, kl_estimate, same_length


def reward_stats(rewards: Sequence[Reward]) -> dict[str, float]:
    """`{"mean", "std", "min", "max"}` over the scored rewards (population std); empty when none was scored."""
    scored = [reward for reward in rewards if is_scored(reward)]
    if not scored:
        return {}
    mean = math.fsum(scored) / len(scored)
    variance = math.fsum((reward - mean) ** 2 for reward in scored) / len(scored)
    return {"mean": mean, "std": math.sqrt(variance), "min": min(scored), "max": max(scored)}


def zero_signal_fraction(groups: Sequence[Sequence[Reward]]) -> float:
    """The share of groups whose scored rewards are all equal (or too few to compare); 0 for no groups."""
    return sum(constant(rewards) for rewards in groups) / len(groups) if groups else 0.0


def length_stats(lengths: Sequence[int]) -> dict[str, float]:
    """`{"mean", "max"}` of completion lengths in tokens; empty when there is none."""
    return {"mean": sum(lengths) / len(lengths), "max": float(max(lengths))} if lengths else {}


def stop_shares(stop_reasons: Iterable[str]) -> dict[str, float]:
    """The share of completions by `stop_reason`; "stop" and "length" are always there unless there is no completion."""
    counts = Counter(stop_reasons)
    total = counts.total()
    return {reason: counts[reason] / total for reason in sorted({"stop", "length", *counts})} if total else {}


def trained_logprobs(data: Sequence[Datum], loss_outputs: Sequence[Mapping[str, Any]]) -> list[float]:
    """The log-probs a `forward` or `forward_backward` reported, at trained positions only, datum after datum.

    Raises:
        ValueError: numbers of datums and outputs, or of positions in one of them, that differ.
    """
    _pair(data, loss_outputs)
    picked: list[float] = []
    for datum, output in zip(data, loss_outputs, strict=True):
        weights, logprobs = datum["loss_inputs"]["weights"]["values"], output["logprobs"]["values"]
        same_length(weights=weights, logprobs=logprobs)
        picked += [lp for weight, lp in zip(weights, logprobs, strict=True) if weight]
    return picked


def sampled_logprobs(data: Sequence[Datum]) -> list[float]:
    """The sampler's log-probs in the order of `trained_logprobs`, to estimate the divergence of the two."""
    return [
        lp
        for datum in data
        for weight, lp in zip(
            datum["loss_inputs"]["weights"]["values"], datum["loss_inputs"]["logprobs"]["values"], strict=True
        )
        if weight
    ]


def sampler_agreement(data: Sequence[Datum], loss_outputs: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """How the trainer's log-probs lp stand to the sampler's q, over all trained tokens.

    `kl_sampler_trainer` (k1) and `kl_sampler_trainer_k3` in nats per token, `ratio_mean` and `ratio_max` of
    exp(lp − q), and `entropy`, the mean of −q: an unbiased estimate of the policy's entropy at temperature 1.

    Raises:
        ValueError: as `trained_logprobs`, or nothing trained.
    """
    trained, sampled = trained_logprobs(data, loss_outputs), sampled_logprobs(data)
    estimate = kl_estimate(sampled, trained)
    ratios = [math.exp(min(lp - q, EXP_LIMIT)) for lp, q in zip(trained, sampled, strict=True)]
    return {
        "kl_sampler_trainer": estimate.k1,
        "kl_sampler_trainer_k3": estimate.k3,
        "ratio_mean": math.fsum(ratios) / len(ratios),
        "ratio_max": max(ratios),
        "entropy": -math.fsum(sampled) / len(sampled),
    }


def mean_nll(data: Sequence[Datum], loss_outputs: Sequence[Mapping[str, Any]]) -> float:
    """Mean negative log-likelihood in nats per trained token, whatever weights or reduction the request had.

    Raises:
        ValueError: as `trained_logprobs`, or nothing trained.
    """
    logprobs = trained_logprobs(data, loss_outputs)
    if not logprobs:
        raise ValueError("no datum has a trained position: there is no likelihood to average")
    return -math.fsum(logprobs) / len(logprobs)


def _pair(data: Sequence[Datum], loss_outputs: Sequence[Mapping[str, Any]]) -> None:
    if len(data) != len(loss_outputs):
        raise ValueError(f"data has {len(data)} datums, loss_outputs has {len(loss_outputs)}: each datum has one")
