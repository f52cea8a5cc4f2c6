"""What each provider accepts, and the checks that hold a caller to it.

`--provider modal` and `--provider tinker` run the local engine and refuse what that provider would refuse, so that a
flow can be tried against both before anything is rented. What the engine itself cannot do yet they refuse as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gateway.errors import invalid
from gateway.losses import (
    CLIP_KEYS,
    CLIP_TENSOR_LOSSES,
    LOSS_KEYS,
    MODAL_LOSS_KEYS,
    NOT_YET_COMPUTED,
    REQUIRED_LOSS_INPUTS,
)
from whitney.types import AdamW, Datum, ForwardPayload, OptimStepPayload, WireRequest

_INTEGER_INPUTS = frozenset({"target_tokens"})
_SOFT_TARGET_INPUTS = frozenset({"target_tokens", "weights"})
_TINKER_LOSSES = ("cross_entropy", "importance_sampling", "ppo", "cispo", "dro")

ProviderName = Literal["local", "modal", "tinker"]


@dataclass(frozen=True, slots=True)
class ProviderRules:
    """What one provider takes.

    `loss_config_keys`: the losses it has, with the scalar keys each takes. `clip_tensor_losses`: losses whose ratio
    bounds may travel as per-token tensors on the datum. `fixed_optimizer`: only the learning rate of a request counts.
    """

    name: ProviderName
    emulated: bool
    loss_config_keys: Mapping[str, frozenset[str]]
    clip_tensor_losses: frozenset[str]
    soft_targets: bool
    fixed_optimizer: AdamW | None = None

    @property
    def losses(self) -> list[str]:
        """The losses that can be asked for here today, sorted."""
        return sorted(self.loss_config_keys.keys() - NOT_YET_COMPUTED)


RULES: Mapping[ProviderName, ProviderRules] = {
    "local": ProviderRules(
        name="local",
        emulated=False,
        loss_config_keys=LOSS_KEYS,
        clip_tensor_losses=CLIP_TENSOR_LOSSES,
        soft_targets=True,
    ),
    "modal": ProviderRules(
        name="modal",
        emulated=True,
        loss_config_keys=MODAL_LOSS_KEYS,
        clip_tensor_losses=frozenset(),
        soft_targets=False,
        fixed_optimizer=AdamW(learning_rate=0.0, grad_clip_norm=1.0),
    ),
    "tinker": ProviderRules(
        name="tinker",
        emulated=True,
        loss_config_keys=dict.fromkeys(_TINKER_LOSSES, frozenset()),
        clip_tensor_losses=CLIP_TENSOR_LOSSES,
        soft_targets=True,
    ),
}


def check_role(role: str) -> None:
    """Refuse a run that nothing could be done with.

    Raises:
        GatewayError: 422 on `role`.
    """
    if role == "critic":
        raise invalid("role", "a critic cannot be trained here yet: this engine does not compute its loss, ppo_critic")


def check_operation(rules: ProviderRules, payload: WireRequest) -> None:
    """Refuse a training payload that the provider would refuse.

    Raises:
        GatewayError: 422, naming the field and what is known.
    """
    if not isinstance(payload, ForwardPayload):
        return
    _check_loss(rules, payload)
    for index, datum in enumerate(payload.data):
        _check_loss_inputs(rules, payload, f"payload.data.{index}.loss_inputs", datum)
    if not any(any(datum.loss_inputs["weights"].values) for datum in payload.data):
        raise invalid("payload.data", "every weight is 0, so nothing would be trained; send weights on the completion")


def adapted(rules: ProviderRules, payload: WireRequest) -> dict[str, Any]:
    """The payload as the provider will act on it: modal passes over all of the optimizer but its learning rate."""
    if rules.fixed_optimizer is not None and isinstance(payload, OptimStepPayload):
        rate = payload.optimizer.learning_rate
        payload = OptimStepPayload(optimizer=rules.fixed_optimizer.model_copy(update={"learning_rate": rate}))
    return payload.model_dump()


def _check_loss(rules: ProviderRules, payload: ForwardPayload) -> None:
    loss = payload.loss_function
    if loss not in rules.losses:
        because = "has no loss" if loss not in rules.loss_config_keys else "does not compute here, yet, the loss"
        raise invalid(
            "payload.loss_function",
            f"{rules.name} {because} {loss!r}; its losses: {', '.join(rules.losses)}",
            known=rules.losses,
        )
    keys = rules.loss_config_keys[loss]
    for key in payload.loss_config:
        if key not in keys:
            on_datums = key in CLIP_KEYS and loss in rules.clip_tensor_losses
            hint = "; the clip range travels as tensors on the datum" if on_datums else ""
            raise invalid(
                f"payload.loss_config.{key}"[:120],
                f"{loss} on {rules.name} takes no such key; its keys: {', '.join(sorted(keys)) or 'none'}{hint}",
                known=sorted(keys),
            )


def _check_loss_inputs(rules: ProviderRules, payload: ForwardPayload, path: str, datum: Datum) -> None:
    loss, given = payload.loss_function, datum.loss_inputs
    required = REQUIRED_LOSS_INPUTS[loss]
    for name in sorted(required - given.keys()):
        raise invalid(f"{path}.{name}", f"missing: {loss} needs {', '.join(sorted(required))}")
    allowed = required | (CLIP_KEYS if loss in rules.clip_tensor_losses else frozenset())
    for name in sorted(given.keys() - allowed):
        raise invalid(
            f"{path}.{name}"[:120],
            f"{loss} on {rules.name} takes no such loss input; it takes {', '.join(sorted(allowed))}",
        )
    if (twice := CLIP_KEYS & given.keys()) and CLIP_KEYS & payload.loss_config.keys():
        raise invalid(f"{path}.{min(twice)}", "the clip range is in loss_config too; send one of the two forms")
    _check_tensors(rules, loss, path, datum)


def _check_tensors(rules: ProviderRules, loss: str, path: str, datum: Datum) -> None:
    soft = loss == "cross_entropy" and rules.soft_targets
    for name, tensor in datum.loss_inputs.items():
        dtype = "int64" if name in _INTEGER_INPUTS else "float32"
        if tensor.dtype != dtype:
            raise invalid(f"{path}.{name}.dtype", f"must be {dtype}, it is {tensor.dtype}")
        if len(tensor.shape) != 1 and not (soft and name in _SOFT_TARGET_INPUTS):
            raise invalid(
                f"{path}.{name}.shape", f"{loss} on {rules.name} takes one dimension here, not {tensor.shape}"
            )
    targets, weights = datum.loss_inputs["target_tokens"], datum.loss_inputs["weights"]
    if targets.shape != weights.shape:
        raise invalid(f"{path}.weights.shape", f"{weights.shape} must equal target_tokens' {targets.shape}")
    if min(targets.values, default=0) < 0:
        raise invalid(f"{path}.target_tokens.values", "a token id is negative")
