"""Overlong completions, and the decision of dynamic sampling."""

import math

import pytest
from algorithm_samples import sequence
from hypothesis import given
from hypothesis import strategies as st

from algorithms import ResamplePolicy, is_overlong, retained, soft_overlong_penalty

POLICY = ResamplePolicy(target_group_size=2, max_rounds=3, max_operations=8)


@pytest.mark.parametrize(
    ("length", "penalty"), [(0, 0.0), (79, 0.0), (80, 0.0), (90, -0.5), (100, -1.0), (101, -1.0), (500, -1.0)]
)
def test_the_soft_overlong_penalty_has_its_published_values(length, penalty):
    assert soft_overlong_penalty(length, max_length=100, cache=20) == penalty


@given(st.integers(0, 300), st.integers(1, 100))
def test_the_soft_overlong_penalty_never_rises_with_length(length, cache):
    here, next_ = (soft_overlong_penalty(n, max_length=100, cache=cache) for n in (length, length + 1))
    assert -1.0 <= next_ <= here <= 0.0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((-1, 100, 20), "length is -1"),
        ((5, 100, 0), "cache is 0: with max_length=100 it must be in 1 … 100"),
        ((5, 100, 101), "cache is 101"),
    ],
)
def test_a_soft_overlong_penalty_that_makes_no_sense_is_refused(arguments, said):
    length, max_length, cache = arguments
    with pytest.raises(ValueError, match=said):
        soft_overlong_penalty(length, max_length=max_length, cache=cache)


def test_overlong_is_what_max_tokens_cut_off():
    assert is_overlong(sequence(3, stop_reason="length"))
    assert not is_overlong(sequence(3, stop_reason="stop"))


def test_what_cannot_be_trained_on_is_dropped_and_counted_under_one_reason_each():
    drawn = [sequence(3), sequence(), sequence(4, stop_reason="length"), sequence(5), sequence(6)]
    decision = retained(drawn, [1.0, 1.0, 1.0, math.nan, 0.0], POLICY)
    assert decision.sequences == [drawn[0], drawn[4]]
    assert decision.rewards == [1.0, 0.0]
    assert decision.dropped == {"empty_completion": 1, "overlong": 1, "unscored": 1}
    assert decision.complete


def test_overlong_completions_stay_when_the_policy_says_so():
    keeping = ResamplePolicy(2, 3, 8, drop_overlong=False)
    decision = retained([sequence(3, stop_reason="length"), sequence(4)], [0.0, 1.0], keeping)
    assert (len(decision.sequences), decision.dropped) == (2, {})


def test_a_group_below_its_target_says_how_many_are_missing():
    decision = retained([sequence(3), sequence(4)], [1.0, None], POLICY)
    assert (decision.missing, decision.complete, decision.zero_signal) == (1, False, False)


def test_a_complete_group_with_equal_rewards_retains_nothing_and_is_not_complete():
    decision = retained([sequence(3), sequence(4), sequence(5)], [0.1, 0.1, 0.1], POLICY)
    assert (decision.sequences, decision.rewards, decision.dropped) == ([], [], {"zero_signal": 3})
    assert decision.zero_signal
    assert (decision.missing, decision.complete) == (2, False)


def test_a_group_that_is_still_too_small_is_not_called_flat():
    decision = retained([sequence(3), sequence(4)], [1.0, 1.0], ResamplePolicy(4, 3, 8))
    assert (len(decision.sequences), decision.zero_signal, decision.missing) == (2, False, 2)


def test_another_round_may_bring_the_signal_that_was_missing():
    drawn = [sequence(3), sequence(4)]
    assert retained(drawn, [1.0, 1.0], POLICY).zero_signal
    decision = retained([*drawn, sequence(5)], [1.0, 1.0, 0.0], POLICY)
    assert (decision.complete, len(decision.sequences)) == (True, 3)


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ({"target_group_size": 1}, "target_group_size is 1: it must be at least 2"),
        ({"max_rounds": -1}, "max_rounds is -1"),
        ({"max_operations": -1}, "max_operations is -1"),
        ({"zero_signal": "again"}, "zero_signal 'again' is unknown"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(policy, said):
    with pytest.raises(ValueError, match=said):
        ResamplePolicy(**{"target_group_size": 2, "max_rounds": 1, "max_operations": 1, **policy})


def test_rewards_that_do_not_pair_are_refused():
    with pytest.raises(ValueError, match="sequences has 1 entries, rewards has 2"):
        retained([sequence(3)], [1.0, 0.0], POLICY)


@given(
    st.lists(
        st.tuples(st.sampled_from([0.0, 1.0, None]), st.integers(0, 2), st.sampled_from(["stop", "length"])),
        max_size=10,
    ),
    st.integers(2, 5),
)
def test_every_completion_is_retained_or_counted(drawn, target):
    sequences = [sequence(*range(length), stop_reason=reason) for _, length, reason in drawn]
    decision = retained(sequences, [reward for reward, _, _ in drawn], ResamplePolicy(target, 1, 1))
    assert len(decision.sequences) + decision.dropped.total() == len(drawn)
    assert decision.complete == (len(decision.sequences) >= target)
