"""The loss table and the payloads of the wire."""

import math

import pytest

from algorithms import (
    MODAL_LOSS_CONFIG_KEYS,
    PROVIDER_LOSS_SUPPORT,
    NoGradientError,
    adamw_optimizer,
    forward_backward_payload,
    require_advertised_loss,
    result_sampler_id,
    sft_datum,
)
from whitney.types import AdamW, ForwardPayload

LOSS_TABLE = {
    "cross_entropy": {"modal", "tinker", "local"},
    "importance_sampling": {"modal", "tinker", "local"},
    "ppo": {"modal", "tinker", "local"},
    "cispo": {"modal", "tinker", "local"},
    "dro": {"tinker", "local"},
    "gspo": {"modal", "local"},
    "ppo_critic": {"modal", "local"},
    "dppo": {"modal", "local"},
    "sapo": {"local"},
}


@pytest.mark.parametrize("loss", LOSS_TABLE)
@pytest.mark.parametrize("provider", ["modal", "tinker", "local"])
def test_a_loss_is_accepted_exactly_where_the_published_table_has_it(loss, provider):
    if provider in LOSS_TABLE[loss]:
        require_advertised_loss(provider, loss)
    else:
        with pytest.raises(ValueError, match=f"{provider} does not advertise loss_function='{loss}'"):
            require_advertised_loss(provider, loss)


def test_a_refusal_lists_the_known_losses_in_order():
    with pytest.raises(ValueError, match=r"cispo, cross_entropy, dro, importance_sampling, ppo\)"):
        require_advertised_loss("tinker", "gspo")


def test_an_unknown_provider_is_refused_by_name():
    with pytest.raises(ValueError, match=r"Unknown provider 'azure'.*local, modal, tinker"):
        require_advertised_loss("azure", "ppo")


def test_a_caller_may_bring_a_table_of_their_own():
    require_advertised_loss("azure", "ppo", {"azure": frozenset({"ppo"})})


def test_every_loss_of_modal_has_a_row_of_config_keys():
    assert set(MODAL_LOSS_CONFIG_KEYS) == PROVIDER_LOSS_SUPPORT["modal"]
    assert MODAL_LOSS_CONFIG_KEYS["ppo"] == {"clip_low_threshold", "clip_high_threshold", "value_clip"}


def test_a_payload_always_has_a_loss_config():
    datum = sft_datum([1], [2])
    payload = forward_backward_payload([datum], "cross_entropy")
    assert payload == {"data": [datum], "loss_function": "cross_entropy", "loss_config": {}}
    ForwardPayload.model_validate(payload)


def test_the_callers_loss_config_is_copied_and_not_shared():
    config = {"clip_low_threshold": 0.8}
    payload = forward_backward_payload([sft_datum([1], [2])], "ppo", config)
    config.clear()
    assert payload["loss_config"] == {"clip_low_threshold": 0.8}


def test_a_payload_without_a_datum_is_an_error_a_loop_can_tell_from_others():
    with pytest.raises(NoGradientError, match="at least one datum"):
        forward_backward_payload([], "ppo")


def test_the_optimizer_says_every_parameter_the_wire_knows():
    optimizer = adamw_optimizer(learning_rate=1e-6)
    assert AdamW.model_validate(optimizer).model_dump() == optimizer
    assert set(optimizer) == set(AdamW.model_fields)
    assert optimizer == AdamW(learning_rate=1e-6).model_dump()  # both have the contract's defaults


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("learning_rate", -1.0),
        ("learning_rate", math.nan),
        ("learning_rate", math.inf),
        ("beta1", 1.0),
        ("beta2", -0.1),
        ("eps", 0.0),
        ("weight_decay", -0.1),
        ("grad_clip_norm", -1.0),
    ],
)
def test_an_optimizer_parameter_out_of_range_is_refused_by_name_and_value(parameter, value):
    with pytest.raises(ValueError, match=f"{parameter} is {value}"):
        adamw_optimizer(**{"learning_rate": 1e-4, parameter: value})


def test_the_sampler_is_read_from_the_result_that_made_it():
    assert result_sampler_id({"sampler_id": "smp_1"}) == "smp_1"
    with pytest.raises(ValueError, match=r"no sampler_id; its fields: \['state_id'\]"):
        result_sampler_id({"state_id": "st_1"})
