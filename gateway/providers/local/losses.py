"""The losses a provider computes: pure functions of log-probs, and the critic's of values.

All are sums over trained tokens, so that split requests and accumulated calls add up. Each formula below is the
per-token loss; its derivative with respect to the current log-prob (or value) is taken by autograd on these few
numbers, in fp64. A config is complete: whoever asks fills in the provider's defaults (`gateway.losses`).

Notation: lp = current log-prob, q = the sampler's, A = advantage, w = weight, ratio = exp(lp − q).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor


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
class TrainedValues:
    """What the critic's loss sees of the trained tokens, each field [n] in fp64.

    `values` are the critic's now, `old_values` those that the datum carries: what it said when the rollout was scored.
    """

    values: Tensor
    weights: Tensor
    old_values: Tensor
    returns: Tensor


@dataclass(frozen=True)
class Loss:
    """Per-token losses [n], and by token whether a clip or a mask was at work (None for losses that have neither)."""

    per_token: Tensor
    clipped: Tensor | None = None


@dataclass(frozen=True)
class LossGradient:
    """A loss evaluated: its value by token and ∂ Σ loss / ∂ log-prob (or ∂ value), both [n] in fp64."""

    loss: Tensor
    gradient: Tensor
    clipped: Tensor | None

    @property
    def is_finite(self) -> bool:
        """Whether every number of it is one."""
        return bool(torch.isfinite(self.loss).all() and torch.isfinite(self.gradient).all())


Config = Mapping[str, float]


def cross_entropy(tokens: TrainedTokens, config: Config) -> Loss:
    """−w·lp."""
    return Loss(-tokens.weights * tokens.logprobs)


def importance_sampling(tokens: TrainedTokens, config: Config) -> Loss:
    """−w·ratio·A."""
    return Loss(-tokens.weights * tokens.log_ratio.exp() * tokens.advantages)


def ppo(tokens: TrainedTokens, config: Config) -> Loss:
    """−w·min(ratio·A, clamp(ratio, lo, hi)·A) (arXiv 1707.06347); the bounds are the ratio's own."""
    return _clipped_objective(tokens, tokens.log_ratio.exp(), config)


def cispo(tokens: TrainedTokens, config: Config) -> Loss:
    """−w·sg(clamp(ratio, lo, hi))·A·lp (arXiv 2506.13585). It never zeroes a gradient."""
    low, high = _bounds(tokens, config)
    ratio = tokens.log_ratio.detach().exp()
    kept = ratio.clamp(low, high)
    return Loss(-tokens.weights * kept * tokens.advantages * tokens.logprobs, clipped=kept != ratio)


def dro(tokens: TrainedTokens, config: Config) -> Loss:
    """−w·(lp·A − ½β(lp − q)²) (arXiv 2405.19107)."""
    penalty = 0.5 * config["beta"] * tokens.log_ratio.square()
    return Loss(-tokens.weights * (tokens.logprobs * tokens.advantages - penalty))


def gspo(tokens: TrainedTokens, config: Config) -> Loss:
    """PPO's objective with the sequence's ratio s = exp(Σ w(lp − q) / Σ w) (arXiv 2507.18071).

    In token form, sg(s)·exp(lp − sg(lp)): every token carries the sequence's ratio and its own gradient.
    """
    sums = torch.zeros(2, int(tokens.sequence.max()) + 1, dtype=torch.float64)
    sums.index_add_(1, tokens.sequence, torch.stack([tokens.weights * tokens.log_ratio.detach(), tokens.weights]))
    sequence_log_ratio = (sums[0] / sums[1])[tokens.sequence]
    ratio = torch.exp(sequence_log_ratio + tokens.logprobs - tokens.logprobs.detach())
    return _clipped_objective(tokens, ratio, config)


def dppo_binary_tv(tokens: TrainedTokens, config: Config) -> Loss:
    """−w·mask·ratio·A, masked where p − μ has gone too far the advantage's way (binary total variation).

    p = exp(lp), μ = exp(q); the mask is 0 for A > 0 and p − μ > delta_high, and for A < 0 and μ − p > delta_low.
    """
    moved = tokens.logprobs.detach().exp() - tokens.sampler_logprobs.exp()
    return _masked_objective(tokens, config, distance=moved.abs(), moved=moved)


def dppo_binary_kl(tokens: TrainedTokens, config: Config) -> Loss:
    """As `dppo_binary_tv`, with the distance D = μ·(q − lp) + (1 − μ)·log((1 − μ)/(1 − p)).

    D is KL(μ ‖ p) of "this token or any other"; the mask is 0 where it exceeds the delta in the advantage's direction.
    """
    current, sampled = tokens.logprobs.detach(), tokens.sampler_logprobs
    # A log-prob rounded to a hair above 0 leaves the other tokens nothing, not less than nothing.
    others, sampled_others = (-torch.expm1(logs).clamp(max=0) for logs in (current, sampled))
    # xlogy, so that a sampler that was certain adds 0 and not 0·∞.
    divergence = (
        sampled.exp() * (sampled - current)
        + torch.xlogy(sampled_others, sampled_others)
        - torch.xlogy(sampled_others, others)
    )
    return _masked_objective(tokens, config, distance=divergence, moved=current - sampled)


def sapo(tokens: TrainedTokens, config: Config) -> Loss:
    """−w·(4/τ)·σ(τ(ratio − 1))·A (arXiv 2511.20347); τ is tau_pos where A > 0, else tau_neg."""
    positive = torch.tensor(config["tau_pos"], dtype=torch.float64)
    negative = torch.tensor(config["tau_neg"], dtype=torch.float64)
    tau = torch.where(tokens.advantages > 0, positive, negative)
    gate = 4 / tau * torch.sigmoid(tau * (tokens.log_ratio.exp() - 1))
    return Loss(-tokens.weights * gate * tokens.advantages)


def ppo_critic(tokens: TrainedValues, config: Config) -> Loss:
    """½w·max((v_c − R)², (v − R)²) with v_c = v_old + clamp(v − v_old, ±value_clip) (the clip of arXiv 2005.12729).

    A sum like the others, so that split requests add up; modal's own is a mean over sequences of token means, so there
    the same learning rate is another step.
    """
    limit = config["value_clip"]
    held = tokens.old_values + (tokens.values - tokens.old_values).clamp(-limit, limit)
    free_error, held_error = (tokens.values - tokens.returns).square(), (held - tokens.returns).square()
    clipped = held_error.detach() > free_error.detach()
    return Loss(0.5 * tokens.weights * torch.maximum(free_error, held_error), clipped)


LossFunction = Callable[[TrainedTokens, Config], Loss]

DPPO_VARIANTS: dict[str, LossFunction] = {"binary_tv": dppo_binary_tv, "binary_kl": dppo_binary_kl}
"""Which of them `dppo` means is the deployment's choice, not the request's."""

LOSSES: dict[str, LossFunction] = {
    "cross_entropy": cross_entropy,
    "importance_sampling": importance_sampling,
    "ppo": ppo,
    "cispo": cispo,
    "dro": dro,
    "gspo": gspo,
    "dppo": dppo_binary_tv,
    "sapo": sapo,
}
"""A policy's, by their names on the wire; what each takes is in `gateway.losses`."""


def evaluate(function: LossFunction, tokens: TrainedTokens, config: Config) -> LossGradient:
    """The loss of each token and its derivative with respect to that token's log-prob."""
    return _derivative(lambda logprobs: function(replace(tokens, logprobs=logprobs), config), tokens.logprobs)


def evaluate_critic(tokens: TrainedValues, config: Config) -> LossGradient:
    """`ppo_critic` of each token and its derivative with respect to that token's value."""
    return _derivative(lambda values: ppo_critic(replace(tokens, values=values), config), tokens.values)


def _derivative(loss_at: Callable[[Tensor], Loss], point: Tensor) -> LossGradient:
    variable = point.detach().requires_grad_(True)
    loss = loss_at(variable)
    (gradient,) = torch.autograd.grad(loss.per_token.sum(), variable)
    return LossGradient(loss.per_token.detach(), gradient, loss.clipped)


def _clipped_objective(tokens: TrainedTokens, ratio: Tensor, config: Config) -> Loss:
    low, high = _bounds(tokens, config)
    free, held = ratio * tokens.advantages, ratio.clamp(low, high) * tokens.advantages
    return Loss(-tokens.weights * torch.minimum(free, held), clipped=held.detach() < free.detach())


def _masked_objective(tokens: TrainedTokens, config: Config, *, distance: Tensor, moved: Tensor) -> Loss:
    """−w·ratio·A without the tokens that are too far away on the side (the sign of `moved`) the advantage pushes to."""
    too_likely = (tokens.advantages > 0) & (moved > 0) & (distance > config["delta_high"])
    too_unlikely = (tokens.advantages < 0) & (moved < 0) & (distance > config["delta_low"])
    masked = too_likely | too_unlikely
    return Loss(-tokens.weights * ~masked * tokens.log_ratio.exp() * tokens.advantages, clipped=masked)


def _bounds(tokens: TrainedTokens, config: Config) -> tuple[Tensor, Tensor]:
    """The ratio's bounds: the datum's tensors where it has them, else those of loss_config."""

    def bound(per_token: Tensor | None, key: str) -> Tensor:
        return torch.tensor(config[key], dtype=torch.float64) if per_token is None else per_token

    return bound(tokens.clip_low, "clip_low_threshold"), bound(tokens.clip_high, "clip_high_threshold")
