"""Losses a provider computes, and the payloads that ask for them.

GET /capabilities has no list of losses (Whitney hands `loss_function` straight to the provider), so the table below is
kept by hand: a hint that saves a wasted allocation, not a live capability.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from algorithms.datums import Datum

_EVERYWHERE = frozenset({"cross_entropy", "importance_sampling", "ppo", "cispo"})

PROVIDER_LOSS_SUPPORT: dict[str, frozenset[str]] = {
    "modal": _EVERYWHERE | {"gspo", "ppo_critic", "dppo"},
    "tinker": _EVERYWHERE | {"dro"},
    "local": _EVERYWHERE | {"gspo", "ppo_critic", "dppo", "dro", "sapo"},
}

MODAL_LOSS_CONFIG_KEYS: dict[str, frozenset[str]] = {
    "cross_entropy": frozenset(),
    "importance_sampling": frozenset(),
    "ppo": frozenset({"clip_low_threshold", "clip_high_threshold", "value_clip"}),
    "cispo": frozenset({"clip_low_threshold", "clip_high_threshold"}),
    "gspo": frozenset({"clip_low_threshold", "clip_high_threshold"}),
    "ppo_critic": frozenset({"value_clip"}),
    "dppo": frozenset({"delta_low", "delta_high"}),
}

_SEVEN_NAMES = (
    "SkyRL has the loss, sapo_policy_loss, but the Tinker-compatible API in front of it takes a fixed list of seven "
    "names, and sapo is not among them"
)
WHY_MISSING: dict[tuple[str, str], str] = {
    ("modal", "sapo"): _SEVEN_NAMES,
    ("tinker", "sapo"): "the losses that tinker publishes are all it takes, and sapo is not among them",
}
"""(provider, loss) → what exactly is missing, for the one loss that neither hosted provider can be sent."""


class NoGradientError(ValueError):
    """There is no datum to send: every completion was dropped, or the group taught nothing.

    A loop over groups catches it, counts the group and goes on; anywhere else it is the mistake it looks like.
    """


def require_advertised_loss(
    provider: str, loss_function: str, support: Mapping[str, frozenset[str]] = PROVIDER_LOSS_SUPPORT
) -> None:
    """Fail before anything is allocated when a provider is known not to take a loss.

    Raises:
        ValueError: an unknown provider, or a loss it does not have; the known ones are listed.
    """
    require_provider(provider, support)
    if loss_function not in support[provider]:
        why = WHY_MISSING.get((provider, loss_function), "")
        having = sorted(name for name, losses in support.items() if loss_function in losses)
        raise ValueError(
            f"{provider} does not advertise loss_function={loss_function!r} "
            f"(known losses: {', '.join(sorted(support[provider]))})"
            + (f": {why}; no clipped loss stands in for it" if why else "")
            + (f". Providers that have it: {', '.join(having)}" if having else "")
        )


def require_provider(provider: str, support: Mapping[str, frozenset[str]] = PROVIDER_LOSS_SUPPORT) -> None:
    """Refuse a provider that the loss table does not have.

    Raises:
        ValueError: an unknown provider; the known ones are listed.
    """
    if provider not in support:
        raise ValueError(f"Unknown provider {provider!r} (known providers: {', '.join(sorted(support))})")


def non_negative(**config: float) -> dict[str, float]:
    """Numbers of a `loss_config` that may be 0 and not less.

    Raises:
        ValueError: one that is negative or not finite; names it.
    """
    for name, value in config.items():
        if not 0 <= value < math.inf:
            raise ValueError(f"{name} is {value}: it must be ≥ 0 and finite")
    return config


def forward_backward_payload(
    data: Sequence[Datum], loss_function: str, loss_config: Mapping[str, float] | None = None
) -> dict[str, Any]:
    """The payload of `forward_backward` and `forward`: `{"data", "loss_function", "loss_config"}`.

    Raises:
        NoGradientError: there is no datum.
    """
    if not data:
        raise NoGradientError("forward_backward_payload needs at least one datum")
    return {"data": list(data), "loss_function": loss_function, "loss_config": dict(loss_config or {})}


def adamw_optimizer(
    learning_rate: float,
    *,
    beta1: float = 0.9,
    beta2: float = 0.95,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    grad_clip_norm: float | None = 1.0,
) -> dict[str, Any]:
    """AdamW with decoupled weight decay as `optim_step` takes it. Source: arXiv 1711.05101.

    `grad_clip_norm` of 0 or None does not clip. Modal honours `learning_rate` alone.

    Raises:
        ValueError: a number out of its range.
    """
    ranges = {
        "learning_rate": (learning_rate, learning_rate >= 0, "≥ 0"),
        "beta1": (beta1, 0 <= beta1 < 1, "in [0, 1)"),
        "beta2": (beta2, 0 <= beta2 < 1, "in [0, 1)"),
        "eps": (eps, eps > 0, "> 0"),
        "weight_decay": (weight_decay, weight_decay >= 0, "≥ 0"),
        "grad_clip_norm": (grad_clip_norm or 0.0, (grad_clip_norm or 0.0) >= 0, "≥ 0, or None"),
    }
    for name, (value, fits, wanted) in ranges.items():
        if not (fits and math.isfinite(value)):
            raise ValueError(f"{name} is {value}: it must be {wanted}")
    return {
        "name": "adamw",
        "learning_rate": learning_rate,
        "beta1": beta1,
        "beta2": beta2,
        "eps": eps,
        "weight_decay": weight_decay,
        "grad_clip_norm": grad_clip_norm,
    }


def result_sampler_id(result: Mapping[str, Any]) -> str:
    """The sampler that `save_weights_for_sampler` made.

    Raises:
        ValueError: the result names none.
    """
    sampler_id = result.get("sampler_id")
    if not isinstance(sampler_id, str) or not sampler_id:
        raise ValueError(f"the result of save_weights_for_sampler has no sampler_id; its fields: {sorted(result)}")
    return sampler_id
