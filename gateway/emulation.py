"""What each provider accepts, and the checks that hold a caller to it.

`--provider modal` and `--provider tinker` run the local engine and refuse what that provider would refuse, so that a
flow can be tried against both before anything is rented.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from gateway.errors import invalid
from gateway.losses import (
    CLIP_KEYS,
    CLIP_TENSOR_LOSSES,
    CRITIC_LOSS,
    LOSS_DEFAULTS,
    LOSS_KEYS,
    MODAL_LOSS_DEFAULTS,
    MODAL_LOSS_KEYS,
    OPTIONAL_LOSS_INPUTS,
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

    `loss_config_keys`: the losses it has, with the scalar keys each takes; `loss_defaults`: what the keys are where a
    request does not say. `clip_tensor_losses`: losses whose ratio bounds may travel as per-token tensors on the datum.
    `fixed_optimizer`: only the learning rate of a request counts.
    """

    name: ProviderName
    emulated: bool
    loss_config_keys: Mapping[str, frozenset[str]]
    clip_tensor_losses: frozenset[str]
    soft_targets: bool
    loss_defaults: Mapping[str, Mapping[str, float]] = field(default_factory=lambda: LOSS_DEFAULTS)
    fixed_optimizer: AdamW | None = None

    @property
    def losses(self) -> list[str]:
        """The losses that can be asked for here, sorted."""
        return sorted(self.loss_config_keys)


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
        loss_defaults=MODAL_LOSS_DEFAULTS,
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


def check_role(rules: ProviderRules, role: str) -> None:
    """Refuse a run that nothing could be done with.

    Raises:
        GatewayError: 422 on `role`.
    """
    if role == "critic" and CRITIC_LOSS not in rules.loss_config_keys:
        raise invalid("role", f"{rules.name} trains no critic: it has no loss {CRITIC_LOSS!r}")


def check_operation(rules: ProviderRules, role: str, kind: str, payload: WireRequest) -> None:
    """Refuse an operation that the provider would refuse, or that has no meaning for a run of this role.

    Raises:
        GatewayError: 422, naming the field and what is known.
    """
    if role == "critic" and kind == "save_weights_for_sampler":
        raise invalid("kind", "this run's role is critic: it has values and nothing to sample; sample a policy run")
    if not isinstance(payload, ForwardPayload):
        return
    _check_loss(rules, role, payload)
    for index, datum in enumerate(payload.data):
        _check_loss_inputs(rules, payload, f"payload.data.{index}.loss_inputs", datum)
    if not any(any(datum.loss_inputs["weights"].values) for datum in payload.data):
        raise invalid("payload.data", "every weight is 0, so nothing would be trained; send weights on the completion")


def adapted(rules: ProviderRules, payload: WireRequest) -> dict[str, Any]:
    """The payload as the provider will act on it, complete.

    A loss_config gets the provider's own default for each key that was not sent (a bound that came as a tensor on the
    datum comes before it); modal passes over all of an optimizer but its learning rate.
    """
    if isinstance(payload, ForwardPayload):
        complete = {**rules.loss_defaults[payload.loss_function], **payload.loss_config}
        return payload.model_dump() | {"loss_config": complete}
    if rules.fixed_optimizer is not None and isinstance(payload, OptimStepPayload):
        rate = payload.optimizer.learning_rate
        payload = OptimStepPayload(optimizer=rules.fixed_optimizer.model_copy(update={"learning_rate": rate}))
    return payload.model_dump()


def _check_loss(rules: ProviderRules, role: str, payload: ForwardPayload) -> None:
    loss = payload.loss_function
    if loss not in rules.loss_config_keys:
        raise invalid(
            "payload.loss_function",
            f"{rules.name} has no loss {loss!r}; its losses: {', '.join(rules.losses)}",
            known=rules.losses,
        )
    if (loss == CRITIC_LOSS) != (role == "critic"):
        known = [CRITIC_LOSS] if role == "critic" else [name for name in rules.losses if name != CRITIC_LOSS]
        raise invalid(
            "payload.loss_function",
            f"this run's role is {role}, which {loss!r} does not train; losses of a {role}: {', '.join(known)}",
            known=known,
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
    clips = CLIP_KEYS if loss in rules.clip_tensor_losses else frozenset()
    allowed = required | OPTIONAL_LOSS_INPUTS[loss] | clips
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
    targets, weights = datum.loss_inputs.get("target_tokens"), datum.loss_inputs["weights"]
    if targets is None:
        return
    if targets.shape != weights.shape:
        raise invalid(f"{path}.weights.shape", f"{weights.shape} must equal target_tokens' {targets.shape}")
    if min(targets.values, default=0) < 0:
        raise invalid(f"{path}.target_tokens.values", "a token id is negative")
