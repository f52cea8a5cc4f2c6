import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithms import (
    KlPenalty,
    kl_adjust_advantages,
    kl_estimate,
    kl_terms,
    length_stats,
    mean_nll,
    reward_stats,
    rl_datum,
    sampled_logprobs,
    sft_datum,
    shape_rewards,
    stop_shares,
    trained_logprobs,
    zero_signal_fraction,
)


def test_the_three_estimates_of_one_token_are_the_textbooks():
    estimate = kl_estimate([-1.0], [-0.5])  # d = −0.5
    assert (estimate.k1, estimate.k2) == (-0.5, 0.125)
    assert estimate.k3 == pytest.approx(math.exp(0.5) - 1 - 0.5)


@given(st.lists(st.tuples(st.floats(-20, 0), st.floats(-20, 0)), min_size=1, max_size=20))
def test_k2_and_k3_are_never_negative_and_equal_policies_have_none(pairs):
    policy, reference = [p for p, _ in pairs], [r for _, r in pairs]
    estimate = kl_estimate(policy, reference)
    assert estimate.k2 >= 0
    assert estimate.k3 >= 0
    assert kl_estimate(policy, policy).k1 == kl_estimate(policy, policy).k3 == 0


def test_a_reference_that_never_says_a_token_gives_a_large_number_and_no_overflow():
    assert math.isfinite(kl_estimate([-1e6], [0.0]).k3)


def test_k1_and_k3_estimate_the_same_divergence_on_the_policys_own_samples():
    policy, reference = [0.7, 0.2, 0.1], [0.2, 0.5, 0.3]
    exact = sum(p * math.log(p / r) for p, r in zip(policy, reference, strict=True))
    outcomes = [token for token, p in enumerate(policy) for _ in range(round(10 * p))]
    estimate = kl_estimate([math.log(policy[t]) for t in outcomes], [math.log(reference[t]) for t in outcomes])
    assert estimate.k1 == pytest.approx(exact)
    assert estimate.k3 == pytest.approx(exact)


def test_the_kl_penalty_is_subtracted_token_by_token():
    assert kl_adjust_advantages([1.0, 1.0], [-1.0, -0.5], [-0.5, -1.5], kl_coef=0.1) == pytest.approx([1.05, 0.9])


def test_a_reverse_kl_of_minus_a_half_is_an_advantage_of_a_half():
    assert kl_adjust_advantages([0.0], [-1.0], [-0.5], kl_coef=1.0) == [0.5]


def test_lists_that_do_not_pair_are_refused_with_every_length():
    with pytest.raises(ValueError, match="advantages has 1, sampled_logprobs has 2, reference_logprobs has 2"):
        kl_adjust_advantages([1.0], [0.0, 0.0], [0.0, 0.0], kl_coef=0.1)


def test_reward_statistics_pass_over_what_was_not_scored():
    assert reward_stats([1.0, 0.0, None, math.nan]) == {"mean": 0.5, "std": 0.5, "min": 0.0, "max": 1.0}
    assert reward_stats([None]) == {}


def test_a_group_without_signal_is_told_by_its_rewards():
    assert zero_signal_fraction([[0.1, 0.1, 0.1], [0.0, 1.0], [1.0, None], [0.0, 1.0]]) == 0.5
    assert zero_signal_fraction([]) == 0.0


def test_lengths_and_stop_reasons_are_summed_up():
    assert length_stats([2, 4]) == {"mean": 3.0, "max": 4.0}
    assert length_stats([]) == {}
    assert stop_shares(["stop", "stop", "stop", "length"]) == {"length": 0.25, "stop": 0.75}
    assert stop_shares(["stop"]) == {"length": 0.0, "stop": 1.0}
    assert stop_shares([]) == {}


def output(values):
    return {"logprobs": {"dtype": "float32", "shape": [len(values)], "values": values}}


def test_the_trainers_and_the_samplers_logprobs_are_picked_at_the_same_positions():
    data = [rl_datum([1, 2], [3, 4], [-0.5, -0.25], 1.0), rl_datum([1], [2], [-2.0], 1.0)]
    outputs = [output([0.0, -0.6, -0.2]), output([-1.9])]
    assert trained_logprobs(data, outputs) == [-0.6, -0.2, -1.9]
    assert sampled_logprobs(data) == [-0.5, -0.25, -2.0]


def test_the_likelihood_does_not_depend_on_the_weights_a_request_had():
    data = [sft_datum([1, 2], [3, 4])]
    assert mean_nll(data, [output([-9.0, -1.0, -3.0])]) == 2.0


@pytest.mark.parametrize("outputs", [[], [output([0.0])]])
def test_outputs_that_do_not_belong_to_the_data_are_refused(outputs):
    with pytest.raises(ValueError, match="has"):
        mean_nll([sft_datum([1, 2], [3, 4])], outputs)


@pytest.mark.parametrize(("estimator", "expected"), [("k1", 0.5), ("k2", 0.125), ("k3", 0.10653)])
def test_the_published_token_has_its_three_terms(estimator, expected):
    assert kl_terms([-1.0], [-1.5], estimator) == [pytest.approx(expected, abs=5e-6)]


@given(st.lists(st.tuples(st.floats(-20, 0), st.floats(-20, 0)), min_size=1, max_size=20))
def test_the_estimate_is_the_mean_of_the_terms(pairs):
    policy, reference = [p for p, _ in pairs], [r for _, r in pairs]
    estimate = kl_estimate(policy, reference)
    for estimator in ("k1", "k2", "k3"):
        mean = math.fsum(kl_terms(policy, reference, estimator)) / len(pairs)
        assert getattr(estimate, estimator) == pytest.approx(mean)


def test_a_penalty_is_its_coefficient_times_the_terms():
    assert KlPenalty(0.5, "k2")([-1.0, -2.0], [-1.5, -2.0]) == [0.0625, 0.0]


def test_the_k1_penalty_adjusts_advantages_as_the_cookbooks_helper_does():
    sampled, reference = [-1.0, -0.5], [-0.5, -1.5]
    penalties = KlPenalty(0.1)(sampled, reference)
    adjusted = kl_adjust_advantages([1.0, 1.0], sampled, reference, kl_coef=0.1)
    assert [1.0 - penalty for penalty in penalties] == adjusted


def test_rewards_are_shaped_by_their_completions_summed_kl_and_missing_ones_stay_missing():
    assert shape_rewards([1.0, 0.0, None, math.nan], [0.2, 0.4, 9.0, 9.0], 0.5) == [0.9, -0.2, None, None]
    with pytest.raises(ValueError, match="rewards has 2 entries, kl_sums has 1"):
        shape_rewards([1.0, 0.0], [0.2], 0.5)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: kl_terms([-1.0], [-1.0], "k4"), "KL estimator 'k4' is unknown: use one of k1, k2, k3"),
        (lambda: kl_terms([-1.0], [], "k1"), "logprobs has 1, reference_logprobs has 0"),
        (lambda: KlPenalty(-0.1), r"the KL coefficient is -0\.1"),
        (lambda: KlPenalty(math.nan), "the KL coefficient is nan"),
        (lambda: KlPenalty(0.1, "kl"), "KL estimator 'kl' is unknown"),
        (lambda: KlPenalty(0.1, place="loss"), "place 'loss' is unknown"),
    ],
)
def test_a_kl_term_that_makes_no_sense_is_refused(call, said):
    with pytest.raises(ValueError, match=said):
        call()
