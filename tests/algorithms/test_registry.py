"""The registry: what every algorithm needs, and what is refused before anything is allocated."""

import re

import pytest

from algorithms import ALGORITHMS, PROVIDER_LOSS_SUPPORT, algorithm, require_losses, require_runnable
from whitney.types import RUN_KINDS, SAMPLER_KINDS

OF_THE_TABLE = {
    *(
        "sft",
        "grpo",
        "grpo_nostd",
        "grpo_len_norm",
        "drgrpo",
        "reinforce",
        "ppo",
        "ppo_critic",
        "cispo",
        "gspo",
        "dppo",
    ),
    *("dro", "dapo", "sapo", "rloo", "reinforce_pp", "maxrl", "opd", "opsd", "sdpo", "dpo", "ttt", "custom"),
}
COST_PROFILES = {"GRPO", "PPO", "REINFORCE", "DPO", "DAPO", "Dr_GRPO", "CISPO", "TTT", "DRO", "OPD", "SDPO"}
REFUSED = {
    ("ppo_critic", "tinker"): "ppo_critic",
    ("gspo", "tinker"): "gspo",
    ("dppo", "tinker"): "dppo",
    ("dro", "modal"): "dro",
    ("sapo", "modal"): "sapo",
    ("sapo", "tinker"): "sapo",
}
"""By algorithm and provider: the loss that is missing. Everything else runs everywhere."""

EVERY = pytest.mark.parametrize("row", ALGORITHMS.values(), ids=ALGORITHMS)


def test_the_registry_has_every_algorithm_of_the_table():
    assert set(ALGORITHMS) == OF_THE_TABLE
    assert [row.name for row in ALGORITHMS.values()] == list(ALGORITHMS)


@EVERY
def test_a_row_speaks_the_wires_operations_and_known_losses(row):
    assert set(row.operations) <= {*RUN_KINDS, *SAMPLER_KINDS}
    assert len(set(row.operations)) == len(row.operations)
    assert {*row.losses, *row.optional_losses} <= set().union(*PROVIDER_LOSS_SUPPORT.values())
    assert {row.profile} - {None} <= COST_PROFILES


@EVERY
def test_a_row_names_the_operations_it_needs_in_its_count_of_a_cycle(row):
    counted = set(re.findall(r"\w+", row.operations_per_cycle))
    assert ("sample" in counted) == row.rollouts
    assert ("logprobs" in counted) == ("logprobs" in row.operations)
    assert ("forward" in counted) == ("forward" in row.operations and row.name != "sft")  # sft: to evaluate only
    frozen = bool({"reference", "teacher"} & set(row.extra_runs))
    assert frozen == ("logprobs" in row.operations or row.name == "dpo")  # dpo asks both runs by forward


@EVERY
def test_a_rows_count_of_a_cycle_in_numbers_names_the_operations_of_its_formula(row):
    counts = row.operations_in_cycle(prompts=3, group_size=5, steps=2)
    named = set(re.findall(r"\w+", row.operations_per_cycle)) & {*RUN_KINDS, *SAMPLER_KINDS}
    assert counts.keys() == named
    assert counts["sample"] in (0, 3)
    assert counts["logprobs"] in (0, 15)


@EVERY
@pytest.mark.parametrize("provider", ["modal", "tinker", "local"])
def test_exactly_the_tables_pairs_of_algorithm_and_provider_are_refused(row, provider):
    missing = REFUSED.get((row.name, provider))
    if missing is None:
        require_runnable(row, provider, row.operations)
        assert set(row.losses) <= set(row.losses_by_provider[provider])
        return
    with pytest.raises(ValueError, match=f"{provider} does not advertise loss_function='{missing}'"):
        require_runnable(row, provider, row.operations)
    with pytest.raises(ValueError, match=f"loss_function='{missing}'"):
        require_losses(row, provider)
    assert any(reason.startswith(f"{provider}: has no {missing}") for reason in row.refuses)
    assert row.losses_by_provider[provider] == ()


def test_a_row_without_a_refusal_refuses_nothing():
    assert algorithm("grpo").refuses == ()
    modal, tinker = algorithm("sapo").refuses
    assert modal.startswith("modal: has no sapo (SkyRL has the loss, sapo_policy_loss, but")
    assert tinker.startswith("tinker: has no sapo (the losses that tinker publishes are all it takes")


def test_losses_that_an_option_asks_for_come_last_and_only_where_the_provider_has_them():
    assert algorithm("reinforce_pp").losses_by_provider["modal"] == ("importance_sampling", "ppo")
    soft = algorithm("opsd").losses_by_provider
    assert soft["local"] == soft["tinker"] == ("importance_sampling", "cross_entropy")
    assert soft["modal"] == ("importance_sampling",)


@pytest.mark.parametrize(
    ("name", "with_mean"), [("dpo", False), ("custom", True), ("sft", True), ("grpo", True), ("opd", True)]
)
def test_gradient_weights_are_refused_where_cross_entropy_is_not_a_plain_sum(name, with_mean):
    row = algorithm(name)
    require_runnable(row, "local", row.operations, "sum")
    if with_mean:
        require_runnable(row, "local", row.operations, "mean")
        return
    with pytest.raises(ValueError, match=rf"{name} sends its gradient.*local's loss_reduction is 'mean'"):
        require_runnable(row, "local", row.operations, "mean")
    assert any("not a plain sum" in reason for reason in row.refuses)


def test_a_capability_row_without_a_needed_operation_is_refused_with_its_name():
    row = algorithm("grpo")
    with pytest.raises(ValueError, match="grpo needs sample, which modal does not advertise"):
        require_runnable(row, "modal", set(row.operations) - {"sample"})


def test_a_row_with_a_reference_needs_logprobs_and_says_what_they_cost():
    row = algorithm("rloo").with_run("reference")
    assert row.extra_runs == ("reference",)
    assert row.operations_per_cycle.endswith("+ P·G logprobs (reference)")
    with pytest.raises(ValueError, match="rloo needs logprobs"):
        require_runnable(row, "local", algorithm("rloo").operations)
    assert row.with_run("reference") is row
    assert "logprobs" not in algorithm("rloo").operations


@pytest.mark.parametrize(
    ("misspelt", "meant"), [("gpro", "grpo"), ("reinforce++", "reinforce"), ("dr_grpo", "drgrpo"), ("rlo", "rloo")]
)
def test_a_misspelt_algorithm_is_met_with_the_near_one(misspelt, meant):
    with pytest.raises(ValueError, match=f"did you mean '{meant}'"):
        algorithm(misspelt)


def test_an_unknown_provider_is_refused_even_by_a_row_without_losses_of_its_own():
    with pytest.raises(ValueError, match="Unknown provider 'azure'"):
        require_runnable(algorithm("custom"), "azure", ())
