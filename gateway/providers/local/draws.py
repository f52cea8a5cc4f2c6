"""Choosing tokens: random numbers that depend on nothing but (seed, row, step), and the inverse of a distribution."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class DrawSettings:
    """How a request draws. `top_k` 0 and `top_p` 1 truncate nothing; temperature 0 takes the most likely token."""

    temperature: float
    top_p: float
    top_k: int


def uniforms(seeds: NDArray[np.uint64], rows: NDArray[np.uint64], step: int) -> NDArray[np.float64]:
    """One number in [0, 1) for each (seed, row) at `step`.

    A hash, not a generator with a state: a draw is the same whatever is sampled beside it, before it or after it.
    """
    mixed = _mix(_mix(_mix(seeds) ^ rows) ^ np.uint64(step))
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), on an increment of the word."""
    with np.errstate(over="ignore"):  # arithmetic modulo 2⁶⁴ is the point
        words = words + np.uint64(0x9E3779B97F4A7C15)
        words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return words ^ (words >> np.uint64(31))


def choose(logprobs: Tensor, settings: DrawSettings, uniform: Tensor) -> Tensor:
    """One token a row of `logprobs` [B, V] by inverse CDF at `uniform` [B]; temperature, then top-k, then top-p."""
    if settings.temperature == 0:
        return logprobs.argmax(-1)
    scaled = logprobs if settings.temperature == 1 else torch.log_softmax(logprobs / settings.temperature, -1)
    if 0 < settings.top_k < scaled.shape[-1]:
        scaled = _keep_top_k(scaled, settings.top_k)
    probabilities = scaled.exp()
    if settings.top_p < 1:
        probabilities = _keep_top_p(probabilities, settings.top_p)
    cumulative = probabilities.cumsum(-1)
    total = cumulative[:, -1:]
    # Below the total even after rounding, and with right=True above every zero: a token without mass is never drawn.
    point = torch.minimum(uniform[:, None].float() * total, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(cumulative, point, right=True)[:, 0]


def _keep_top_k(logprobs: Tensor, count: int) -> Tensor:
    best = logprobs.topk(count, -1)
    kept = torch.full_like(logprobs, float("-inf")).scatter_(-1, best.indices, best.values)
    return torch.log_softmax(kept, -1)


def _keep_top_p(probabilities: Tensor, mass: float) -> Tensor:
    """The fewest tokens that together reach `mass`; the most likely one always stays."""
    ordered, tokens = probabilities.sort(stable=True, dim=-1, descending=True)
    before = ordered.cumsum(-1) - ordered
    return torch.zeros_like(probabilities).scatter_(-1, tokens, ordered * (before < mass))
