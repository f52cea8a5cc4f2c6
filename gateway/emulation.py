"""What each provider accepts: one table as data, and the checks that read it.

`--provider modal` and `--provider tinker` run the local engine and refuse what that provider would refuse, so that a
flow can be tried against both before anything is rented. The table is the published one, kept by hand; `local` is ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gateway.errors import invalid
from whitney.types import AdamW, Datum, ForwardPayload, OptimStepPayload, WireRequest

_CLIP = frozenset({"clip_low_threshold", "clip_high_threshold"})
_POLICY = frozenset({"target_tokens", "weights", "logprobs", "advantages"})

REQUIRED_LOSS_INPUTS: Mapping[str, frozenset[str]] = {
    "cross_entropy": frozenset({"target_tokens", "weights"}),
    "importance_sampling": _POLICY,
    "ppo": _POLICY,
    "cispo": _POLICY,
    "dro": _POLICY,
    "gspo": _POLICY,
    "dppo": _POLICY,
    "sapo": _POLICY,
    "ppo_critic": frozenset({"weights", "values", "returns"}),
}

# `forward` on a critic is how the values are obtained in the first place, so only the positions are asked for.
REQUIRED_TO_READ_VALUES = frozenset({"weights"})

_INTEGER_INPUTS = frozenset({"target_tokens"})
_SOFT_TARGET_INPUTS = frozenset({"target_tokens", "weights"})

_MODAL_KEYS: dict[str, frozenset[str]] = {
    "cross_entropy": frozenset(),
    "importance_sampling": frozenset(),
    "ppo": _CLIP | {"value_clip"},
    "cispo": _CLIP,
    "gspo": _CLIP,
    "ppo_critic": frozenset({"value_clip"}),
    "dppo": frozenset({"delta_low", "delta_high"}),
}
_LOCAL_ONLY_KEYS = {"dro": frozenset({"beta"}), "sapo": frozenset({"tau_pos", "tau_neg"})}
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


RULES: Mapping[ProviderName, ProviderRules] = {
    "local": ProviderRules(
        name="local",
        emulated=False,
        loss_config_keys=_MODAL_KEYS | _LOCAL_ONLY_KEYS,
        clip_tensor_losses=frozenset({"ppo", "cispo"}),
        soft_targets=True,
    ),
    "modal": ProviderRules(
        name="modal",
        emulated=True,
        loss_config_keys=_MODAL_KEYS,
        clip_tensor_losses=frozenset(),
        soft_targets=False,
        fixed_optimizer=AdamW(learning_rate=0.0, grad_clip_norm=1.0),
    ),
    "tinker": ProviderRules(
        name="tinker",
        emulated=True,
        loss_config_keys=dict.fromkeys(_TINKER_LOSSES, frozenset()),
        clip_tensor_losses=frozenset({"ppo", "cispo"}),
        soft_targets=True,
    ),
}


def check_operation(rules: ProviderRules, role: str, kind: str, payload: WireRequest) -> None:
    """Refuse a training payload that the provider would refuse.

    Raises:
        GatewayError: 422, naming the field and what is known.
    """
    if not isinstance(payload, ForwardPayload):
        return
    _check_loss(rules, role, payload)
    required = REQUIRED_LOSS_INPUTS[payload.loss_function]
    if payload.loss_function == "ppo_critic" and kind == "forward":
        required = REQUIRED_TO_READ_VALUES
    for index, datum in enumerate(payload.data):
        _check_loss_inputs(rules, payload, required, f"payload.data.{index}.loss_inputs", datum)
    if not any(any(datum.loss_inputs["weights"].values) for datum in payload.data):
        raise invalid("payload.data", "every weight is 0, so nothing would be trained; send weights on the completion")


def adapted(rules: ProviderRules, payload: WireRequest) -> dict[str, Any]:
    """The payload as the provider will act on it: modal passes over all of the optimizer but its learning rate."""
    if rules.fixed_optimizer is not None and isinstance(payload, OptimStepPayload):
        rate = payload.optimizer.learning_rate
        payload = OptimStepPayload(optimizer=rules.fixed_optimizer.model_copy(update={"learning_rate": rate}))
    return payload.model_dump()


def _check_loss(rules: ProviderRules, role: str, payload: ForwardPayload) -> None:
    loss, keys = payload.loss_function, rules.loss_config_keys
    if loss not in keys:
        raise invalid(
            "payload.loss_function",
            f"{rules.name} has no loss {loss!r}; its losses: {', '.join(sorted(keys))}",
            known=sorted(keys),
        )
    for key in payload.loss_config:
        if key not in keys[loss]:
            known = ", ".join(sorted(keys[loss])) or "none"
            hint = (
                "; the clip range travels as tensors on the datum" if _clip_belongs_on_datums(rules, loss, key) else ""
            )
            raise invalid(
                f"payload.loss_config.{key}"[:120],
                f"{loss} on {rules.name} takes no such key; its keys: {known}{hint}",
                known=sorted(keys[loss]),
            )
    if (loss == "ppo_critic") != (role == "critic"):
        raise invalid("payload.loss_function", f"{loss} does not train a run whose role is {role}")


def _clip_belongs_on_datums(rules: ProviderRules, loss: str, key: str) -> bool:
    return key in _CLIP and loss in rules.clip_tensor_losses


def _check_loss_inputs(
    rules: ProviderRules, payload: ForwardPayload, required: frozenset[str], path: str, datum: Datum
) -> None:
    loss, given = payload.loss_function, datum.loss_inputs
    for name in sorted(required - given.keys()):
        raise invalid(f"{path}.{name}", f"missing: {loss} needs {', '.join(sorted(required))}")
    allowed = required | REQUIRED_LOSS_INPUTS[loss] | (_CLIP if loss in rules.clip_tensor_losses else frozenset())
    for name in sorted(given.keys() - allowed):
        raise invalid(
            f"{path}.{name}"[:120],
            f"{loss} on {rules.name} takes no such loss input; it takes {', '.join(sorted(allowed))}",
        )
    if (twice := _CLIP & given.keys()) and _CLIP & payload.loss_config.keys():
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
    if "target_tokens" in datum.loss_inputs:
        targets, weights = datum.loss_inputs["target_tokens"], datum.loss_inputs["weights"]
        if targets.shape != weights.shape:
            raise invalid(f"{path}.weights.shape", f"{weights.shape} must equal target_tokens' {targets.shape}")
        if min(targets.values, default=0) < 0:
            raise invalid(f"{path}.target_tokens.values", "a token id is negative")
