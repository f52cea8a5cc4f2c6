import pytest

from algorithms.catalogue import further_reading, profile, profile_of, profiles, references
from algorithms.registry import ALGORITHMS
from algorithms.scaling import H100_HOURS_PER_GB200_HOUR


def test_the_catalogue_has_tinker_nomics_s_eleven_rows_and_its_32_references() -> None:
    assert list(profiles()) == [
        *("GRPO", "PPO", "REINFORCE", "DPO", "DAPO", "Dr_GRPO", "CISPO", "TTT", "DRO", "OPD", "SDPO"),
    ]
    assert len(references()) == 32
    assert [one.key for one in further_reading()] == ["aweers_rl_for_llms", "rlhf_book", "laminar"]
    assert str(references()["sdpo"]) == ("Self-Distillation Policy Optimization — Gulcehre et al. — arXiv 2601.20802")


def test_only_ppo_has_a_critic_and_a_reward_model_in_memory() -> None:
    assert {name for name, row in profiles().items() if row.critic} == {"PPO"}
    for row in profiles().values():
        assert row.critic == ("critic" in row.models)
        assert row.reward_model == ("reward_model" in row.models)
        assert row.memory == ("high" if row.critic else "low")
    assert profile("OPD").models == ("policy", "teacher")


def test_the_published_curves_are_the_table_s() -> None:
    fits = {name: row.scaling for name, row in profiles().items() if row.scaling is not None}
    assert {name: (fit.ceiling, fit.steepness, fit.midpoint) for name, fit in fits.items()} == {
        "GRPO": (0.50, 1.8, 4000),
        "DAPO": (0.52, 2.0, 3500),
        "Dr_GRPO": (0.51, 1.9, 3800),
        "CISPO": (0.58, 2.2, 3000),
    }
    for fit in fits.values():  # at Cmid half of the way is gone, wherever it began
        assert fit.curve(0.2).reward(fit.midpoint) == pytest.approx((0.2 + fit.ceiling) / 2)
    in_h100_hours = {name: fit.midpoint * H100_HOURS_PER_GB200_HOUR for name, fit in fits.items()}
    assert in_h100_hours == {"GRPO": 11_200, "DAPO": 9_800, "Dr_GRPO": 10_640, "CISPO": 8_400}


def test_every_algorithm_s_profile_and_every_row_s_references_are_there() -> None:
    assert {row.profile for row in ALGORITHMS.values() if row.profile} == set(profiles())
    assert {key for row in profiles().values() for key in row.references} <= set(references())


def test_a_variant_has_its_family_s_row_and_what_is_of_no_family_has_none() -> None:
    assert not [row.name for row in ALGORITHMS.values() if row.profile and row.family]
    assert {row.family for row in ALGORITHMS.values() if row.family} == {"GRPO", "REINFORCE", "SDPO"}
    assert profile_of(ALGORITHMS["ppo"]) == profile("GRPO"), "it has no critic"
    assert profile_of(ALGORITHMS["ppo_critic"]) == profile("PPO")
    assert [name for name, row in ALGORITHMS.items() if profile_of(row) is None] == ["sft", "custom"]


def test_typical_settings_are_the_table_s() -> None:
    assert profile("PPO").typical_k == (2, 3, 4)
    assert profile("GRPO").typical_g == (2, 8, 16, 32, 64)
    assert profile("DPO").typical_g == ()
    assert [name for name, row in profiles().items() if not row.asynchronous] == ["DPO"]


def test_an_unknown_row_is_refused_with_the_nearest() -> None:
    with pytest.raises(ValueError, match="no 'GRPPO': did you mean 'GRPO'"):
        profile("GRPPO")
