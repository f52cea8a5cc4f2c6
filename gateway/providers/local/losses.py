"""The losses a provider computes: pure functions of log-probs.

All are sums over trained tokens, so that split requests and accumulated calls add up. Each formula below is the
per-token loss; its derivative with respect to the current log-prob is taken by autograd on these few numbers, in fp64.

Notation: lp = current log-prob, q = the sampler's, A = advantage, w = weight, ratio = exp(lp − q).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from gateway.providers.local.errors import EngineError


@dataclass(frozen=True)
class TrainedTokens:
    """What a loss sees of the trained tokens, each field [n] in fp64 (`sequence` int64).

    For `cross_entropy` only `logprobs` and `weights` are there; with soft targets an entry is one target of a token.
    `sequence` numbers the datum a token belongs to.
    """

    logprobs: Tensor
    weights: Tensor
    sequence: Tensor
    sampler_logprobs: Tensor
    advantages: Tensor
    clip_low: Tensor | None = None
    clip_high: Tensor | None = None

    @property
    def log_ratio(self) -> Tensor:
        """lp − q."""
        return self.logprobs - self.sampler_logprobs


@dataclass(frozen=True)
class Loss:
    """Per-token losses [n], and by token whether a clip or a mask was at work (None for losses that have neither)."""

    per_token: Tensor
    clipped: Tensor | None = None


@dataclass(frozen=True)
class LossGradient:
    """A loss evaluated: its value by token and ∂ Σ loss / ∂ log-prob, both [n] in fp64."""

    loss: Tensor
    gradient: Tensor
    clipped: Tensor | None


Config = Mapping[str, float]


def cross_entropy(tokens: TrainedTokens, config: Config) -> Loss:
    """−w·lp."""
    return Loss(-tokens.weights * tokens.logprobs)


def importance_sampling(tokens: TrainedTokens, config: Config) -> Loss:
    """−w·ratio·A."""
    return Loss(-tokens.weights * tokens.log_ratio.exp() * tokens.advantages)


def ppo(tokens: TrainedTokens, config: Config) -> Loss:
    """−w·min(ratio·A, clamp(ratio, lo, hi)·A) (arXiv 1707.06347); bounds of the ratio, default 0.8 and 1.2."""
    return _clipped_objective(tokens, tokens.log_ratio.exp(), config)


def cispo(tokens: TrainedTokens, config: Config) -> Loss:
    """−w·sg(clamp(ratio, lo, hi))·A·lp (arXiv 2506.13585); default bounds 0 and 4. It never zeroes a gradient."""
    low, high = _bounds(tokens, config, 0.0, 4.0)
    ratio = tokens.log_ratio.detach().exp()
    kept = ratio.clamp(low, high)
    return Loss(-tokens.weights * kept * tokens.advantages * tokens.logprobs, clipped=kept != ratio)


def dro(tokens: TrainedTokens, config: Config) -> Loss:
    """−w·(lp·A − ½β(lp − q)²) (arXiv 2405.19107); default β 0.05."""
    penalty = 0.5 * config.get("beta", 0.05) * tokens.log_ratio.square()
    return Loss(-tokens.weights * (tokens.logprobs * tokens.advantages - penalty))


def gspo(tokens: TrainedTokens, config: Config) -> Loss:
    """PPO's objective with the sequence's ratio s = exp(Σ w(lp − q) / Σ w) (arXiv 2507.18071), default 0.8 and 1.2.

    In token form, sg(s)·exp(lp − sg(lp)): every token carries the sequence's ratio and its own gradient.
    """
    sums = torch.zeros(2, int(tokens.sequence.max()) + 1, dtype=torch.float64)
    sums.index_add_(1, tokens.sequence, torch.stack([tokens.weights * tokens.log_ratio.detach(), tokens.weights]))
    sequence_log_ratio = (sums[0] / sums[1])[tokens.sequence]
    ratio = torch.exp(sequence_log_ratio + tokens.logprobs - tokens.logprobs.detach())
    return _clipped_objective(tokens, ratio, config)


def dppo(tokens: TrainedTokens, config: Config) -> Loss:
    """−w·mask·ratio·A, masked where p − μ has gone too far the advantage's way (binary total variation).

    p = exp(lp), μ = exp(q); the mask is 0 for A > 0 and p − μ > delta_high, and for A < 0 and μ − p > delta_low;
    default 0.2 and 0.2.
    """
    moved = tokens.logprobs.detach().exp() - tokens.sampler_logprobs.exp()
    too_likely = (tokens.advantages > 0) & (moved > config.get("delta_high", 0.2))
    too_unlikely = (tokens.advantages < 0) & (-moved > config.get("delta_low", 0.2))
    masked = too_likely | too_unlikely
    return Loss(-tokens.weights * ~masked * tokens.log_ratio.exp() * tokens.advantages, clipped=masked)


def sapo(tokens: TrainedTokens, config: Config) -> Loss:
    """−w·(4/τ)·σ(τ(ratio − 1))·A (arXiv 2511.20347); τ is tau_pos (1.0) where A > 0, else tau_neg (1.05)."""
    positive = torch.tensor(config.get("tau_pos", 1.0), dtype=torch.float64)
    negative = torch.tensor(config.get("tau_neg", 1.05), dtype=torch.float64)
    tau = torch.where(tokens.advantages > 0, positive, negative)
    gate = 4 / tau * torch.sigmoid(tau * (tokens.log_ratio.exp() - 1))
    return Loss(-tokens.weights * gate * tokens.advantages)


LossFunction = Callable[[TrainedTokens, Config], Loss]

_CLIP_KEYS = frozenset({"clip_low_threshold", "clip_high_threshold"})

# Each loss with the keys its loss_config may have. ppo's value_clip is accepted as the backends do, and has no effect
# without a critic.
LOSSES: dict[str, tuple[LossFunction, frozenset[str]]] = {
    "cross_entropy": (cross_entropy, frozenset()),
    "importance_sampling": (importance_sampling, frozenset()),
    "ppo": (ppo, _CLIP_KEYS | {"value_clip"}),
    "cispo": (cispo, _CLIP_KEYS),
    "dro": (dro, frozenset({"beta"})),
    "gspo": (gspo, _CLIP_KEYS),
    "dppo": (dppo, frozenset({"delta_low", "delta_high"})),
    "sapo": (sapo, frozenset({"tau_pos", "tau_neg"})),
}

CLIP_TENSOR_LOSSES = frozenset({"ppo", "cispo"})
"""Losses whose bounds may travel as per-token tensors on the datum instead."""


def check_loss(name: str, config: Config) -> None:
    """Refuse what the engine does not compute, before any work is done.

    Raises:
        EngineError: `unsupported_loss` or `invalid_loss_config`.
    """
    if name not in LOSSES:
        raise EngineError("unsupported_loss", f"loss_function {name!r} is not computed here; known: {sorted(LOSSES)}")
    if unknown := sorted(set(config) - LOSSES[name][1]):
        raise EngineError(
            "invalid_loss_config", f"loss_config.{unknown[0]} is not a key of {name}; known: {sorted(LOSSES[name][1])}"
        )


def evaluate(name: str, tokens: TrainedTokens, config: Config) -> LossGradient:
    """The loss of each token and its derivative with respect to that token's log-prob."""
    logprobs = tokens.logprobs.detach().requires_grad_(True)
    function, _ = LOSSES[name]
    loss = function(_with_logprobs(tokens, logprobs), config)
    (gradient,) = torch.autograd.grad(loss.per_token.sum(), logprobs)
    return LossGradient(loss.per_token.detach(), gradient, loss.clipped)


def _with_logprobs(tokens: TrainedTokens, logprobs: Tensor) -> TrainedTokens:
    return TrainedTokens(
        logprobs,
        tokens.weights,
        tokens.sequence,
        tokens.sampler_logprobs,
        tokens.advantages,
        tokens.clip_low,
        tokens.clip_high,
    )


def _clipped_objective(tokens: TrainedTokens, ratio: Tensor, config: Config) -> Loss:
    low, high = _bounds(tokens, config, 0.8, 1.2)
    free, held = ratio * tokens.advantages, ratio.clamp(low, high) * tokens.advantages
    return Loss(-tokens.weights * torch.minimum(free, held), clipped=held.detach() < free.detach())


def _bounds(tokens: TrainedTokens, config: Config, low: float, high: float) -> tuple[Tensor, Tensor]:
    """The ratio's bounds, from the datum's tensors or from loss_config, whichever form was sent."""

    def bound(per_token: Tensor | None, key: str, default: float) -> Tensor:
        if per_token is not None:
            return per_token
        return torch.tensor(config.get(key, default), dtype=torch.float64)

    return (
        bound(tokens.clip_low, "clip_low_threshold", low),
        bound(tokens.clip_high, "clip_high_threshold", high),
    )
