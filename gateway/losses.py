"""The losses of the contract: one table as data, for the checks of what arrives and for the engine that computes them.

Kept by hand from the published provider table; `dro`'s and `sapo`'s keys are this project's own.
"""

from __future__ import annotations

from collections.abc import Mapping

CRITIC_LOSS = "ppo_critic"
"""The one loss of a critic run; every other loss is a policy run's."""

CLIP_KEYS = frozenset({"clip_low_threshold", "clip_high_threshold"})
"""Bounds of the ratio: scalars in `loss_config`, or per-token tensors on the datum."""

CLIP_TENSOR_LOSSES = frozenset({"ppo", "cispo"})
"""Losses whose bounds may travel as tensors."""

MODAL_LOSS_KEYS: Mapping[str, frozenset[str]] = {
    "cross_entropy": frozenset(),
    "importance_sampling": frozenset(),
    # value_clip is accepted as the backends do; without a critic it has no effect.
    "ppo": CLIP_KEYS | {"value_clip"},
    "cispo": CLIP_KEYS,
    "gspo": CLIP_KEYS,
    CRITIC_LOSS: frozenset({"value_clip"}),
    "dppo": frozenset({"delta_low", "delta_high"}),
}
"""Each loss that modal has, with the scalar keys its `loss_config` may have."""

LOSS_KEYS: Mapping[str, frozenset[str]] = {
    **MODAL_LOSS_KEYS,
    "dro": frozenset({"beta"}),
    "sapo": frozenset({"tau_pos", "tau_neg"}),
}
"""The same for every loss of the contract."""

LOSS_DEFAULTS: Mapping[str, Mapping[str, float]] = {
    "cross_entropy": {},
    "importance_sampling": {},
    "ppo": {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2},
    "cispo": {"clip_low_threshold": 0.0, "clip_high_threshold": 4.0},
    "gspo": {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2},
    CRITIC_LOSS: {"value_clip": 0.2},
    "dppo": {"delta_low": 0.2, "delta_high": 0.2},
    "dro": {"beta": 0.05},
    "sapo": {"tau_pos": 1.0, "tau_neg": 1.05},
}
"""What a key is where a request does not say. All bounds are of the ratio itself, none is a distance from 1."""

MODAL_LOSS_DEFAULTS: Mapping[str, Mapping[str, float]] = {
    **LOSS_DEFAULTS,
    "cispo": {"clip_low_threshold": 0.0, "clip_high_threshold": 5.0},
}
"""The same on modal."""

REQUIRED_LOSS_INPUTS: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(LOSS_KEYS, frozenset({"target_tokens", "weights", "logprobs", "advantages"})),
    "cross_entropy": frozenset({"target_tokens", "weights"}),
    CRITIC_LOSS: frozenset({"weights", "values", "returns"}),
}
"""What a datum must carry, by loss."""

OPTIONAL_LOSS_INPUTS: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(LOSS_KEYS, frozenset()),
    # A value is that of the state before the target: which token came of it changes nothing.
    CRITIC_LOSS: frozenset({"target_tokens"}),
}
"""What a datum may carry besides, by loss; the clip tensors are the provider's affair (see `gateway.emulation`)."""
