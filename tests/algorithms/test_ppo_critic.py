import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithms import NoGradientError
from algorithms.gae import gae, terminal_rewards
from algorithms.loss_terms import LossTerms
from algorithms.ppo_critic import (
    build,
    build_critic_loss,
    build_loss,
    critic_datum,
    normalize_advantages,
    value_datum,
)
from whitney.types import Datum

REQUEST = {"prompt": {"token_ids": [1, 2, 3]}}


def sequence(values, **more):
    tokens = list(range(10, 10 + len(values)))
    return {"tokens": tokens, "logprobs": [-0.5] * len(values), "values": values, **more}


def values_of(datum, name):
    return datum["loss_inputs"][name]["values"]


def test_a_critic_datum_is_right_shifted_with_a_prompt_of_zeros():
    datum = critic_datum([1, 2, 3], [4, 5], values=[0.5, 0.25], returns=[2.0, 1.0])
    assert datum["input"]["token_ids"] == [1, 2, 3, 4]
    assert {name: values_of(datum, name) for name in datum["loss_inputs"]} == {
        "target_tokens": [2, 3, 4, 5],
        "weights": [0.0, 0.0, 1.0, 1.0],
        "values": [0.0, 0.0, 0.5, 0.25],
        "returns": [0.0, 0.0, 2.0, 1.0],
    }
    Datum.model_validate(datum)


def test_the_critic_is_first_asked_without_values():
    assert value_datum([1], [4, 5]) == critic_datum([1], [4, 5], values=[0.0, 0.0], returns=[0.0, 0.0])


def test_one_completion_is_enough_and_its_numbers_are_those_of_gae():
    built = build([1, 2, 3], [sequence([0.5, 0.25, 0.75])], [1.0], gamma=0.9, lam=0.8)
    advantages, returns = gae(terminal_rewards(1.0, 3), [0.5, 0.25, 0.75], gamma=0.9, lam=0.8)
    (policy,), (critic,) = built.policy, built.critic
    assert values_of(policy, "advantages") == [0.0, 0.0, *advantages]
    assert values_of(policy, "logprobs") == [0.0, 0.0, -0.5, -0.5, -0.5]
    assert values_of(critic, "returns") == [0.0, 0.0, *returns]
    assert values_of(critic, "values") == [0.0, 0.0, 0.5, 0.25, 0.75]
    assert policy["input"] == critic["input"]


def test_what_cannot_be_used_is_dropped_from_both_runs_and_counted():
    sequences = [sequence([0.5]), sequence([]), sequence([0.5]), sequence([0.5])]
    built = build([1], sequences, [1.0, 1.0, None, math.nan])
    assert len(built.policy) == len(built.critic) == 1
    assert built.dropped_by_reason == {"empty_completion": 1, "unscored": 2}


def test_bounds_travel_on_the_policys_datum_only():
    built = build([1], [sequence([0.5])], [1.0], terms=LossTerms(0.8, 1.2, {}))
    assert values_of(built.policy[0], "clip_high_threshold") == [1.2]
    assert "clip_high_threshold" not in built.critic[0]["loss_inputs"]


@given(st.lists(st.lists(st.floats(-3, 3), min_size=1, max_size=6), min_size=1, max_size=5))
def test_normalised_advantages_have_mean_zero_and_deviation_one_over_the_steps_tokens(values):
    data = build([1, 2], [sequence(one) for one in values], [float(i) for i in range(len(values))]).policy
    given_ = np.concatenate([values_of(datum, "advantages")[1:] for datum in data])
    normal = np.concatenate([values_of(datum, "advantages")[1:] for datum in normalize_advantages(data)])
    deviation = given_.std() if given_.std() >= 1e-6 else 1.0
    assert normal == pytest.approx((given_ - given_.mean()) / deviation, abs=1e-6)


def test_normalising_leaves_prompts_at_zero_and_the_given_datums_alone():
    (datum,) = build([1, 2, 3], [sequence([0.5, 0.0])], [1.0]).policy
    before = values_of(datum, "advantages").copy()
    (normal,) = normalize_advantages([datum])
    assert values_of(normal, "advantages") == pytest.approx([0.0, 0.0, -1.0, 1.0])
    assert values_of(datum, "advantages") == before
    assert normalize_advantages([]) == []


def test_the_mean_alone_can_be_taken_off():
    (datum,) = build([1], [sequence([0.5, 0.0])], [1.0], lam=1.0).policy  # advantages .5 and 1
    assert values_of(normalize_advantages([datum], scale=False)[0], "advantages") == [-0.25, 0.25]


@pytest.mark.parametrize("provider", ["modal", "local"])
def test_a_group_makes_a_payload_for_each_run(provider):
    sample, ctx = {"sequences": [sequence([0.5, 0.5], reward=1.0)]}, SimpleNamespace(provider=provider)
    policy, critic = build_loss(sample, 0, REQUEST, ctx), build_critic_loss(sample, 0, REQUEST, ctx)
    assert (policy["loss_function"], critic["loss_function"]) == ("ppo", "ppo_critic")
    assert policy["loss_config"] == {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}
    assert critic["loss_config"] == {"value_clip": 0.2}
    assert sorted(critic["data"][0]["loss_inputs"]) == ["returns", "target_tokens", "values", "weights"]


def test_tinker_has_no_critic_and_is_refused_before_anything_is_built():
    for refused in (build_loss, build_critic_loss):
        with pytest.raises(ValueError, match="tinker does not advertise loss_function='ppo_critic'"):
            refused({}, 0, REQUEST, SimpleNamespace(provider="tinker"))


def test_a_group_without_a_usable_completion_has_nothing_to_teach():
    sample = {"sequences": [sequence([0.5], reward=None)]}
    with pytest.raises(NoGradientError):
        build_loss(sample, 0, REQUEST, SimpleNamespace(provider="local"))


def test_what_does_not_pair_is_refused_with_its_lengths():
    with pytest.raises(ValueError, match="tokens has 2, values has 1, returns has 2"):
        critic_datum([1], [4, 5], values=[0.5], returns=[1.0, 1.0])
    with pytest.raises(ValueError, match="sequence 0 has no values"):
        build([1], [{"tokens": [4], "logprobs": [-0.5]}], [1.0])
    with pytest.raises(ValueError, match="tokens has 1, values has 2"):
        build([1], [{"tokens": [4], "logprobs": [-0.5], "values": [0.1, 0.2]}], [1.0])
    with pytest.raises(ValueError, match="sequences has 1 entries, rewards has 2"):
        build([1], [sequence([0.5])], [1.0, 0.0])
