"""The losses once more, from their definitions, in plain NumPy: what the engine's are compared with.

Each is a function of the current numbers (log-probs, or a critic's values) *and* of the same numbers held still: what a
definition stops the gradient of is computed from `held`. So its value is loss(x, x), and its gradient the slope of
loss(·, held=x) at x, taken by finite differences: no derivative is written down here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Tokens:
    """Trained tokens in a row, each field [n]; `sequence` numbers the datum of each."""

    weights: Array
    sequence: np.ndarray[Any, np.dtype[np.int64]]
    inputs: dict[str, Array]

    @property
    def sampled(self) -> Array:
        return self.inputs["logprobs"]

    @property
    def advantages(self) -> Array:
        return self.inputs["advantages"]


Config = dict[str, float]
Reference = Callable[[Array, Array, Tokens, Config], Array]
"""(current, held, tokens, config) → the loss of each token."""


def cross_entropy(now: Array, held: Array, tokens: Tokens, config: Config) -> Array:
    return -tokens.weights * now


def importance_sampling(now: Array, held: Array, tokens: Tokens, config: Config) -> Array:
    return -tokens.weights * np.exp(now - tokens.sampled) * tokens.advantages


def ppo(now: Array, held: Array, tokens: Tokens, config: Config) -> Array:
    return _ppo(np.exp(now - tokens.sampled), tokens, config)


def _ppo(ratio: Array, tokens: Tokens, config: Config) -> Array:
    inside = np.clip(ratio, config["clip_low_threshold"], config["clip_high_threshold"])
    return -tokens.weights * np.minimum(ratio * tokens.advantages, inside * tokens.advantages)


def gspo(now: Array, held: Array, tokens: Tokens, config: Config) -> Array:
    ratio = np.empty_like(now)
    for number in set(tokens.sequence.tolist()):
        own = tokens.sequence == number
        mean = np.average((held - tokens.sampled)[own], weights=tokens.weights[own])
        ratio[own] = np.exp(mean) * np.exp(now[own] - held[own])
    return _ppo(ratio, tokens, config)


def cispo(now: Array, held: Array, tokens: Tokens, config: Config) -> Array:
    ratio = np.exp(held - tokens.sampled)
    ratio = np.where(ratio < config["clip_low_threshold"], config["clip_low_threshold"], ratio)
    ratio = np.where(ratio > config["clip_high_threshold"], config["clip_high_threshold"], ratio)
    return -tokens.weights * ratio * tokens.advantages * now


def dro(now: Array, held: Array, tokens: Tokens, config: Config) -> Array:
    regularizer = config["beta"] / 2 * (now - tokens.sampled) ** 2
    return -tokens.weights * (now * tokens.advantages - regularizer)


def dppo_binary_tv(now: Array, held: Array, tokens: Tokens, config: Config) -> Array:
    p, mu = np.exp(held), np.exp(tokens.sampled)
    gone_up = (tokens.advantages > 0) & (p - mu > config["delta_high"])
    gone_down = (tokens.advantages < 0) & (mu - p > config["delta_low"])
    kept = np.where(gone_up | gone_down, 0.0, 1.0)
    return kept * importance_sampling(now, held, tokens, config)


def dppo_binary_kl(now: Array, held: Array, tokens: Tokens, config: Config) -> Array:
    p, mu = np.exp(held), np.exp(tokens.sampled)
    divergence = mu * np.log(mu / p) + (1 - mu) * np.log((1 - mu) / (1 - p))
    gone_up = (tokens.advantages > 0) & (p > mu) & (divergence > config["delta_high"])
    gone_down = (tokens.advantages < 0) & (p < mu) & (divergence > config["delta_low"])
    kept = np.where(gone_up | gone_down, 0.0, 1.0)
    return kept * importance_sampling(now, held, tokens, config)


def sapo(now: Array, held: Array, tokens: Tokens, config: Config) -> Array:
    tau = np.array([config["tau_pos"] if a > 0 else config["tau_neg"] for a in tokens.advantages])
    ratio = np.exp(now - tokens.sampled)
    gate = 4 / (tau * (1 + np.exp(-tau * (ratio - 1))))
    return -tokens.weights * gate * tokens.advantages


def ppo_critic(now: Array, held: Array, tokens: Tokens, config: Config) -> Array:
    old, returns, limit = tokens.inputs["values"], tokens.inputs["returns"], config["value_clip"]
    near = np.minimum(np.maximum(now, old - limit), old + limit)
    return 0.5 * tokens.weights * np.maximum((near - returns) ** 2, (now - returns) ** 2)


REFERENCES: dict[str, Reference] = {
    "cross_entropy": cross_entropy,
    "cross_entropy soft": cross_entropy,
    "importance_sampling": importance_sampling,
    "ppo": ppo,
    "cispo": cispo,
    "dro": dro,
    "gspo": gspo,
    "dppo binary_tv": dppo_binary_tv,
    "dppo binary_kl": dppo_binary_kl,
    "sapo": sapo,
    "ppo_critic": ppo_critic,
}
"""By variant: the wire's name, and behind it what a deployment or a datum chooses."""

CONFIGS: dict[str, Config] = {
    "ppo": {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2},
    "cispo": {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2},
    "gspo": {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2},
    "dppo binary_tv": {"delta_low": 0.002, "delta_high": 0.002},
    "dppo binary_kl": {"delta_low": 0.0001, "delta_high": 0.0001},
    "dro": {"beta": 0.3},
    "sapo": {"tau_pos": 1.5, "tau_neg": 2.5},
    "ppo_critic": {"value_clip": 0.2},
}
"""Such that data whose ratios are e^±0.6 and e^±0.1 lie on both sides of every clip and mask, the tiny model's
probabilities being near 1/64."""


def value(name: str, now: Array, tokens: Tokens) -> Array:
    """The loss of each token."""
    return REFERENCES[name](now, now, tokens, CONFIGS.get(name, {}))


def gradient(name: str, now: Array, tokens: Tokens, width: float = 1e-6) -> Array:
    """∂ loss / ∂ each number, by central differences."""
    found = np.zeros_like(now)
    for index in range(len(now)):
        step = np.zeros_like(now)
        step[index] = width
        up, down = (
            REFERENCES[name](moved, now, tokens, CONFIGS.get(name, {})).sum() for moved in (now + step, now - step)
        )
        found[index] = (up - down) / (2 * width)
    return found
