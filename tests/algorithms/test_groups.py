"""From a group to datums: clip bounds, KL terms, and which groups have something to teach."""

import math

import pytest
from algorithm_samples import PROMPT, REQUEST, on, sequence, trained
from hypothesis import given
from hypothesis import strategies as st

from algorithms import (
    KlPenalty,
    NoGradientError,
    baseline_advantages,
    build_group,
    clip_range,
    group_loss,
    group_mean_advantages,
    leave_one_out_baseline,
)
from whitney.types import ForwardPayload


def centred(rewards, lengths):
    return group_mean_advantages(rewards)


def leave_one_out(rewards, lengths):
    return leave_one_out_baseline(rewards)


def test_an_estimate_is_given_the_completions_lengths():
    seen = []
    build_group(
        PROMPT, [sequence(3, 4), sequence(5)], [1.0, 0.0], lambda r, lengths: seen.append(lengths) or [1.0, 1.0]
    )
    assert seen == [[2, 1]]


def test_tinkers_bounds_are_on_every_datum_at_the_completions_positions():
    terms = clip_range("tinker", 0.8, 1.28)
    built = build_group(PROMPT, [sequence(3, 4), sequence(5)], [1.0, 0.0], centred, terms=terms)
    inputs = built.data[0]["loss_inputs"]
    assert inputs["clip_low_threshold"]["values"] == [0.0, 0.8, 0.8]
    assert inputs["clip_high_threshold"]["values"] == [0.0, 1.28, 1.28]


def test_a_kl_term_in_the_advantage_is_subtracted_token_by_token():
    sequences = [sequence(3, 4, reference=[-1.0, -0.25]), sequence(5, reference=[-0.5])]
    built = build_group(PROMPT, sequences, [1.0, 0.0], centred, kl=KlPenalty(0.1))
    assert trained(built.data[0]) == pytest.approx([0.5 - 0.1 * 0.5, 0.5 + 0.1 * 0.25])
    assert trained(built.data[1]) == pytest.approx([-0.5])
    assert built.advantages == [0.5, -0.5]


def test_a_kl_term_in_the_reward_is_taken_before_the_baseline():
    """The published case: r = [1, 0], summed KL [.2, .4], β = .5, leave-one-out."""
    sequences = [sequence(3, 4, reference=[-0.6, -0.6]), sequence(5, 6, reference=[-0.7, -0.7])]
    built = build_group(PROMPT, sequences, [1.0, 0.0], leave_one_out, kl=KlPenalty(0.5, place="reward"))
    assert built.advantages == pytest.approx([1.1, -1.1])
    assert trained(built.data[0]) == pytest.approx([1.1, 1.1])


@pytest.mark.parametrize("place", ["advantage", "reward"])
def test_an_empty_completion_needs_no_reference_and_is_only_counted(place):
    sequences = [sequence(3, reference=[-0.5]), sequence(4, reference=[-0.5]), sequence()]
    built = build_group(PROMPT, sequences, [1.0, 0.0, 1.0], centred, kl=KlPenalty(0.1, place=place))
    assert (built.advantages, built.dropped_by_reason) == ([0.5, -0.5, None], {"empty_completion": 1})


def test_any_function_of_the_two_log_probs_may_be_the_penalty():
    sequences = [sequence(3, 4, reference=[-1.0, -1.0]), sequence(5, reference=[-1.0])]
    built = build_group(PROMPT, sequences, [1.0, 0.0], centred, kl=lambda lp, ref: [0.25] * len(lp))
    assert [trained(datum) for datum in built.data] == [[0.25, 0.25], [-0.75]]


def test_a_penalty_of_another_length_than_the_completion_is_refused():
    sequences = [sequence(3, 4, reference=[-1.0, -1.0]), sequence(5, reference=[-1.0])]
    with pytest.raises(ValueError, match="tokens has 2, penalties has 1"):
        build_group(PROMPT, sequences, [1.0, 0.0], centred, kl=lambda lp, ref: [0.25])


@pytest.mark.parametrize("place", ["advantage", "reward"])
@pytest.mark.parametrize(
    ("reference", "said"),
    [(None, "sequence 1 has 1 tokens and none reference_logprobs"), ([-1.0, -1.0], "sequence 1 has 1 tokens and 2")],
)
def test_a_kl_term_without_one_reference_logprob_per_token_is_refused_with_both_numbers(place, reference, said):
    sequences = [sequence(3, 4, reference=[-1.0, -1.0]), sequence(5, reference=reference)]
    with pytest.raises(ValueError, match=said):
        build_group(PROMPT, sequences, [1.0, 0.0], centred, kl=KlPenalty(0.1, place=place))


def test_equal_rewards_are_sent_when_a_kl_term_gives_them_a_gradient():
    sequences = [sequence(3, reference=[-1.0]), sequence(4, reference=[-0.5])]
    built = build_group(PROMPT, sequences, [1.0, 1.0], centred, kl=KlPenalty(0.1))
    assert [trained(datum) for datum in built.data] == [pytest.approx([-0.05]), [0.0]]
    assert built.zero_signal
    assert built.dropped_by_reason == {}


def test_a_kl_coefficient_of_0_is_no_kl_term():
    sequences = [sequence(3, reference=[-1.0]), sequence(4, reference=[-0.5])]
    built = build_group(PROMPT, sequences, [1.0, 1.0], centred, kl=KlPenalty(0.0))
    assert (built.data, built.dropped_by_reason) == ([], {"zero_signal": 2})


def test_one_usable_completion_is_not_sent_for_its_kl_term_alone():
    sequences = [sequence(3, reference=[-1.0]), sequence(4, reference=[-1.0])]
    built = build_group(PROMPT, sequences, [1.0, None], centred, kl=KlPenalty(0.1))
    assert (built.data, built.dropped_by_reason) == ([], {"unscored": 1, "too_few_rewards": 1})


def test_equal_rewards_differ_from_a_baseline_that_comes_from_outside():
    built = build_group(PROMPT, [sequence(3), sequence(4)], [1.0, 1.0], lambda r, n: baseline_advantages(r, 0.25))
    assert [trained(datum) for datum in built.data] == [[0.75], [0.75]]
    assert not built.zero_signal


def test_rounding_that_an_estimate_leaves_of_equal_rewards_is_not_a_signal():
    def careless(rewards, lengths):
        mean = sum(rewards) / len(rewards)
        return [reward - mean for reward in rewards]

    assert careless([0.1, 0.1, 0.1], [1, 1, 1]) != [0.0, 0.0, 0.0]
    built = build_group(PROMPT, [sequence(3), sequence(4), sequence(5)], [0.1, 0.1, 0.1], careless)
    assert (built.data, built.dropped_by_reason) == ([], {"zero_signal": 3})


def test_an_estimate_that_finds_nothing_in_rewards_that_differ_sends_nothing():
    built = build_group(PROMPT, [sequence(3), sequence(4)], [1.0, -1.0], lambda rewards, lengths: [0.0, 0.0])
    assert (built.data, built.dropped_by_reason, built.zero_signal) == ([], {"zero_signal": 2}, True)


def test_the_published_nan_case_excludes_one_completion_and_counts_it():
    sequences = [sequence(3), sequence(4), sequence(5), sequence(6)]
    built = build_group(PROMPT, sequences, [1.0, math.nan, 0.0, 0.0], centred)
    assert built.advantages == [pytest.approx(2 / 3), None, pytest.approx(-1 / 3), pytest.approx(-1 / 3)]
    assert built.dropped_by_reason == {"unscored": 1}
    assert len(built.data) == 3


def test_a_payloads_config_holds_the_losss_terms():
    sample = {"sequences": [sequence(3, 4, reward=1.0), sequence(5, reward=0.0)]}
    terms = clip_range("local", 0.8, 1.2)
    payload = group_loss(sample, REQUEST, on("local"), centred, "ppo", terms=terms)
    ForwardPayload.model_validate(payload)
    assert payload["loss_config"] == {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}
    assert payload["loss_config"] is not terms.loss_config


def test_a_loss_the_provider_lacks_is_refused_before_the_sample_is_looked_at():
    with pytest.raises(ValueError, match="tinker does not advertise loss_function='gspo'"):
        group_loss({}, {}, on("tinker"), centred, "gspo")


def test_a_sample_without_rewards_says_that_there_is_no_gradient():
    sequences = [{name: one[name] for name in ("tokens", "logprobs")} for one in (sequence(3), sequence(4))]
    with pytest.raises(NoGradientError):
        group_loss({"sequences": sequences}, REQUEST, on("local"), centred, "importance_sampling")


@given(st.lists(st.tuples(st.sampled_from([0.0, 0.5, 1.0, None, math.nan]), st.integers(0, 3)), min_size=2, max_size=8))
def test_every_completion_is_either_sent_or_counted_under_one_reason(drawn):
    sequences = [sequence(*range(length)) for _, length in drawn]
    built = build_group(PROMPT, sequences, [reward for reward, _ in drawn], centred)
    assert len(built.data) + sum(built.dropped_by_reason.values()) == len(drawn)
    assert len(built.advantages) == len(drawn)
