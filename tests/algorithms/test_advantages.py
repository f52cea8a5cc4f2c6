import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithms import (
    all_zero,
    group_mean_advantages,
    leave_one_out_baseline,
    length_normalize,
    max_relative_advantage,
)

THREE_OF_EIGHT = [1.0] * 3 + [0.0] * 5
RELATIVE = [group_mean_advantages, leave_one_out_baseline, max_relative_advantage]
REWARDS = st.lists(st.floats(-100, 100), min_size=2, max_size=16)


def test_three_right_of_eight_gives_the_published_group_mean_advantages():
    assert group_mean_advantages(THREE_OF_EIGHT) == [0.625] * 3 + [-0.375] * 5


def test_three_right_of_eight_gives_the_published_standardised_advantages():
    advantages = group_mean_advantages(THREE_OF_EIGHT, normalize_std=True)
    assert advantages == pytest.approx([1.2910] * 3 + [-0.7746] * 5, abs=5e-5)


def test_three_right_of_eight_gives_the_published_leave_one_out_advantages():
    assert leave_one_out_baseline(THREE_OF_EIGHT) == pytest.approx([0.7143] * 3 + [-0.4286] * 5, abs=5e-5)


def test_max_relative_pays_only_the_one_that_beats_all_others():
    assert max_relative_advantage([1.0, 3.0, 2.0]) == [-2.0, 1.0, -1.0]


@pytest.mark.parametrize("estimate", RELATIVE)
def test_three_times_a_tenth_is_exactly_zero_and_not_minus_1e_17(estimate):
    assert estimate([0.1, 0.1, 0.1]) == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("estimate", RELATIVE)
@pytest.mark.parametrize("bad", [None, math.nan, math.inf])
def test_one_unusable_reward_leaves_the_others_as_if_it_were_not_there(estimate, bad):
    first, second, third, missing = estimate([1.0, 0.5, 0.0, bad])
    assert missing is None
    assert [first, second, third] == estimate([1.0, 0.5, 0.0])


@pytest.mark.parametrize("estimate", RELATIVE)
def test_a_single_usable_reward_has_nothing_to_be_compared_with(estimate):
    assert estimate([1.0, None]) == [0.0, None]


@pytest.mark.parametrize("estimate", RELATIVE)
def test_a_group_of_one_is_refused(estimate):
    with pytest.raises(ValueError, match=r"got 1 reward.*at least two"):
        estimate([1.0])


def test_a_deviation_too_small_to_divide_by_only_centres():
    assert group_mean_advantages([0.0, 1e-7], normalize_std=True) == pytest.approx([-5e-8, 5e-8])


def test_all_zero_allows_for_rounding_and_passes_over_what_was_not_scored():
    assert all_zero([1e-17, -1e-17, None])
    assert not all_zero([1e-17, 1e-3])
    assert not all_zero([1e-17, 1e-3], tolerance=1e-4)
    assert all_zero([1e-17, 1e-3], tolerance=1e-2)


def test_length_normalisation_divides_by_the_completions_length():
    assert length_normalize(-3.0, 4) == -0.75


@pytest.mark.parametrize("length", [0, -1])
def test_a_completion_without_length_is_refused(length):
    with pytest.raises(ValueError, match=f"completion_length is {length}"):
        length_normalize(1.0, length)


@given(REWARDS, st.floats(-50, 50))
def test_centred_advantages_sum_to_zero_and_ignore_a_common_offset(rewards, offset):
    advantages = group_mean_advantages(rewards)
    assert math.fsum(advantages) == pytest.approx(0.0, abs=1e-7)
    assert group_mean_advantages([reward + offset for reward in rewards]) == pytest.approx(advantages, abs=1e-6)


@given(st.lists(st.integers(-20, 20), min_size=2, max_size=16).filter(lambda rewards: len(set(rewards)) > 1))
def test_standardised_advantages_have_unit_population_deviation(rewards):
    advantages = group_mean_advantages(rewards, normalize_std=True)
    assert math.fsum(value * value for value in advantages) / len(advantages) == pytest.approx(1.0)


@given(st.lists(st.integers(-20, 20), min_size=2, max_size=16))
def test_leave_one_out_is_the_centred_advantage_stretched_by_n_over_n_minus_one(rewards):
    stretch = len(rewards) / (len(rewards) - 1)
    assert leave_one_out_baseline(rewards) == pytest.approx([stretch * a for a in group_mean_advantages(rewards)])
