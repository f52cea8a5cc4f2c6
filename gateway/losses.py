"""The losses of the contract: one table as data, for the checks of what arrives and for the engine that computes them.

Kept by hand from the published provider table; `dro`'s and `sapo`'s keys are this project's own.
"""

from __future__ import annotations

from collections.abc import Mapping

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
    "ppo_critic": frozenset({"value_clip"}),
    "dppo": frozenset({"delta_low", "delta_high"}),
}
"""Each loss that modal has, with the scalar keys its `loss_config` may have."""

LOSS_KEYS: Mapping[str, frozenset[str]] = {
    **MODAL_LOSS_KEYS,
    "dro": frozenset({"beta"}),
    "sapo": frozenset({"tau_pos", "tau_neg"}),
}
"""The same for every loss of the contract."""

NOT_YET_COMPUTED = frozenset({"ppo_critic"})
"""Losses of the contract that the engine here does not compute yet, whichever provider it stands in for."""

_POLICY = frozenset({"target_tokens", "weights", "logprobs", "advantages"})

REQUIRED_LOSS_INPUTS: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(LOSS_KEYS.keys() - NOT_YET_COMPUTED, _POLICY),
    "cross_entropy": frozenset({"target_tokens", "weights"}),
}
"""What a datum must carry, for every loss that is computed."""
