import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithms import (
    all_zero,
    baseline_advantages,
    group_mean_advantages,
    leave_one_out_baseline,
    length_normalize,
    max_relative_advantage,
    mean_normalized_advantage,
    moving_baseline,
)
from algorithms.advantages import per_token

THREE_OF_EIGHT = [1.0] * 3 + [0.0] * 5
RELATIVE = [group_mean_advantages, leave_one_out_baseline, max_relative_advantage, mean_normalized_advantage]
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


def test_three_right_of_eight_gives_the_published_advantages_by_the_mean():
    assert mean_normalized_advantage(THREE_OF_EIGHT) == pytest.approx([1.6667] * 3 + [-1.0] * 5, abs=5e-5)


@pytest.mark.parametrize("rewards", [[-1.0, 0.0], [-1.0, 1.0], [-3.0, 1.0, 1.0]])
def test_a_mean_that_is_not_positive_is_not_divided_by(rewards):
    assert mean_normalized_advantage(rewards) == [0.0] * len(rewards)


def test_the_sample_convention_divides_by_one_less_and_adds_eps():
    rewards = [1.0, 0.0, 0.0, 0.0]
    sample = group_mean_advantages(rewards, normalize_std=True, std="sample", eps=0.1)
    assert sample == pytest.approx([0.75 / 0.6, *[-0.25 / 0.6] * 3])
    population = group_mean_advantages(rewards, normalize_std=True, std="population", eps=0.1)
    assert population == group_mean_advantages(rewards, normalize_std=True)


@pytest.mark.parametrize(
    ("options", "said"), [({"std": "unbiased"}, "std 'unbiased' is unknown"), ({"eps": -1e-4}, "eps is -0.0001")]
)
def test_a_convention_that_does_not_exist_is_refused(options, said):
    with pytest.raises(ValueError, match=said):
        group_mean_advantages([1.0, 0.0], **options)


def test_a_baseline_from_outside_needs_no_siblings():
    assert baseline_advantages([1.0], 0.25) == [0.75]
    assert baseline_advantages([1.0, None, math.nan], 0.25) == [0.75, None, None]


def test_the_moving_baseline_weighs_the_latest_cycles_most_and_starts_at_the_first_ones_mean():
    assert moving_baseline([]) == 0.0
    assert moving_baseline([0.4]) == 0.4
    assert moving_baseline([0.0, 1.0], decay=0.5) == pytest.approx(2 / 3)
    assert moving_baseline([0.0, 1.0], decay=0.0) == 1.0
    assert moving_baseline([0.0, 1.0], decay=1.0) == 0.5


def test_a_cycle_in_which_nothing_was_scored_leaves_the_moving_baseline_alone():
    assert moving_baseline([0.4, None, math.nan]) == 0.4


def test_a_decay_that_would_grow_is_refused():
    with pytest.raises(ValueError, match=r"decay is 1\.5"):
        moving_baseline([0.4], decay=1.5)


def test_a_missing_advantage_stays_missing_whatever_its_length():
    assert per_token([2.0, None], [4, 0]) == [0.5, None]
    with pytest.raises(ValueError, match="advantages has 1 entries, lengths has 2"):
        per_token([1.0], [1, 1])


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


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30), st.floats(0, 1))
def test_a_moving_baseline_lies_between_the_means_it_is_made_of(means, decay):
    assert min(means) - 1e-9 <= moving_baseline(means, decay=decay) <= max(means) + 1e-9


@given(st.lists(st.integers(0, 20), min_size=2, max_size=16), st.floats(0.1, 10))
def test_dividing_by_the_mean_forgets_the_rewards_scale(rewards, factor):
    scaled = mean_normalized_advantage([factor * reward for reward in rewards])
    assert scaled == pytest.approx(mean_normalized_advantage(rewards))
