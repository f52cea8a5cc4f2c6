"""Tables that are kept twice because one side may not import the other: they must say the same.

`algorithms` imports nothing but NumPy, the gateway does not import `algorithms`, and the engine's functions need torch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import pytest

from algorithms import MODAL_LOSS_CONFIG_KEYS, PROVIDER_LOSS_SUPPORT, adamw_optimizer
from gateway.emulation import RULES, ProviderName
from gateway.losses import (
    CRITIC_LOSS,
    LOSS_DEFAULTS,
    LOSS_KEYS,
    MODAL_LOSS_DEFAULTS,
    OPTIONAL_LOSS_INPUTS,
    REQUIRED_LOSS_INPUTS,
)
from gateway.providers.local.losses import LOSSES
from whitney.types import AdamW
from whitney.types.operation import LossFunction

PAGE = (Path(__file__).parents[2] / "docs" / "whitney-api.md").read_text(encoding="utf-8")
PROVIDERS: tuple[ProviderName, ...] = get_args(ProviderName)


def test_every_provider_of_one_table_is_in_the_other() -> None:
    assert set(PROVIDER_LOSS_SUPPORT) == set(RULES) == set(PROVIDERS)


@pytest.mark.parametrize("provider", ["modal", "tinker"])
def test_the_callers_table_is_the_emulations_table_of_the_provider(provider: ProviderName) -> None:
    assert PROVIDER_LOSS_SUPPORT[provider] == RULES[provider].loss_config_keys.keys()


def test_the_callers_table_promises_of_local_what_is_computed() -> None:
    assert PROVIDER_LOSS_SUPPORT["local"] == set(RULES["local"].losses)


def test_the_engine_computes_every_loss_that_is_accepted() -> None:
    for rules in RULES.values():
        assert set(rules.losses) <= LOSSES.keys() | {CRITIC_LOSS}
    assert LOSSES.keys() | {CRITIC_LOSS} == LOSS_KEYS.keys()
    assert LOSS_KEYS.keys() == REQUIRED_LOSS_INPUTS.keys() == OPTIONAL_LOSS_INPUTS.keys()


@pytest.mark.parametrize("defaults", [LOSS_DEFAULTS, MODAL_LOSS_DEFAULTS])
def test_every_key_of_a_loss_has_a_default(defaults: Mapping[str, Mapping[str, float]]) -> None:
    # A policy has no values to clip: ppo's value_clip is taken and has no effect.
    assert {loss: set(keys) for loss, keys in defaults.items()} == {
        loss: set(keys) - ({"value_clip"} if loss == "ppo" else set()) for loss, keys in LOSS_KEYS.items()
    }


def test_config_keys_of_modal_are_the_same_on_both_sides() -> None:
    assert dict(RULES["modal"].loss_config_keys) == MODAL_LOSS_CONFIG_KEYS


def test_a_loss_takes_the_same_keys_wherever_it_takes_any() -> None:
    for loss, keys in RULES["modal"].loss_config_keys.items():
        assert RULES["local"].loss_config_keys[loss] == keys


def test_the_wire_names_every_loss_of_the_tables_and_no_other() -> None:
    assert set(get_args(LossFunction)) == LOSS_KEYS.keys()


def test_an_optimizer_without_numbers_is_the_same_for_caller_and_wire() -> None:
    assert adamw_optimizer(1e-3) == AdamW(learning_rate=1e-3).model_dump()


def documented_losses() -> dict[str, tuple[str, str]]:
    """loss → (providers, keys and defaults) of the page's table."""
    section = PAGE.split("\n## Losses\n")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    return {name.strip("`"): (providers, keys) for name, providers, keys in rows[2:]}


def test_the_page_on_the_api_lists_every_loss_with_its_providers() -> None:
    having = {loss: {name for name in PROVIDERS if loss in RULES[name].losses} for loss in LOSS_KEYS}
    assert {loss: set(providers.split(", ")) for loss, (providers, _) in documented_losses().items()} == having


def test_the_page_on_the_api_gives_every_key_and_its_default() -> None:
    for loss, (_, keys) in documented_losses().items():
        assert set(re.findall(r"`(\w+)`", keys)) == LOSS_KEYS[loss]
        documented = {key: float(number) for key, number in re.findall(r"`(\w+)` ([\d.]+)", keys)}
        assert documented == LOSS_DEFAULTS[loss]
    changed = {loss for loss in LOSS_KEYS if MODAL_LOSS_DEFAULTS[loss] != LOSS_DEFAULTS[loss]}
    assert changed == {"cispo"}
    assert f"; {MODAL_LOSS_DEFAULTS['cispo']['clip_high_threshold']:g} on modal" in documented_losses()["cispo"][1]
