import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithms.entropic import BETA_CAP, entropic_advantages, solve_beta

REWARDS = st.lists(st.floats(-10, 10).map(lambda value: round(value, 3)), min_size=3, max_size=16)


def divergence(rewards, beta):
    logits = beta * np.asarray(rewards)
    p = np.exp(logits - logits.max())
    p /= p.sum()
    return float(np.sum(p[p > 0] * np.log(p[p > 0] * len(p))))


def test_a_fixed_beta_gives_the_worked_numbers():
    assert entropic_advantages([1, 0, 0, 0], beta=2.0) == pytest.approx([6.3891, *[-0.6805] * 3], abs=5e-5)


def test_the_adaptive_beta_gives_the_worked_numbers():
    assert solve_beta([1, 0, 0, 0]) == pytest.approx(2.5532, abs=5e-5)
    assert entropic_advantages([1, 0, 0, 0]) == pytest.approx([11.8487, *[-0.7980] * 3], abs=5e-5)


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        ([1, 1, 1, 0], [0.5, -1.0]),
        ([1, 1, 0, 0], [2.0, -1.0]),
        ([1] * 11 + [0] * 11, [1.1, -1.0]),  # here the divergence is rounded to a little above ln 2
    ],
)
def test_a_group_tied_at_the_top_has_no_solution_and_gets_the_cap_with_finite_advantages(rewards, expected):
    assert solve_beta(rewards) == BETA_CAP
    assert sorted(set(entropic_advantages(rewards))) == pytest.approx(sorted(set(expected)), abs=1e-9)


def test_two_completions_never_reach_the_budget_and_stay_finite():
    assert solve_beta([1, 0]) == BETA_CAP
    assert all(map(math.isfinite, entropic_advantages([1, 0])))


def test_a_constant_group_teaches_nothing():
    assert entropic_advantages([0.1, 0.1, 0.1]) == [0.0, 0.0, 0.0]
    assert entropic_advantages([0.1, None], beta=2.0) == [0.0, None]


def test_what_was_not_scored_keeps_its_place_and_changes_nothing():
    with_gap = entropic_advantages([1, math.nan, 0, None, 0, 0], beta=2.0)
    assert [with_gap[i] for i in (0, 2, 4, 5)] == entropic_advantages([1, 0, 0, 0], beta=2.0)
    assert with_gap[1] is with_gap[3] is None


@given(REWARDS.filter(lambda rewards: len(rewards) > 2 * rewards.count(max(rewards))))
def test_the_solved_beta_is_the_smallest_that_reaches_ln_2(rewards):
    beta = solve_beta(rewards)
    assert divergence(rewards, beta) == pytest.approx(math.log(2), abs=1e-9)
    assert divergence(rewards, 0.99 * beta) < math.log(2)


@given(REWARDS, st.floats(-100, 100))
def test_a_shift_of_all_rewards_changes_nothing(rewards, shift):
    moved = [reward + shift for reward in rewards]
    assert entropic_advantages(moved, beta=1.5) == pytest.approx(entropic_advantages(rewards, beta=1.5), rel=1e-9)


@given(REWARDS)
def test_a_better_completion_never_has_the_smaller_advantage(rewards):
    pairs = sorted(zip(rewards, entropic_advantages(rewards), strict=True))
    assert [a for _, a in pairs] == sorted(a for _, a in pairs)


def test_a_small_beta_is_the_centred_reward_of_the_other_algorithms():
    beta, rewards = 1e-5, [3.0, 1.0, 0.0, -2.0]
    leave_one_out = [r - (sum(rewards) - r) / 3 for r in rewards]
    assert [a / beta for a in entropic_advantages(rewards, beta=beta)] == pytest.approx(leave_one_out, abs=1e-3)


@pytest.mark.parametrize("beta", [0.0, -1.0, math.inf, math.nan])
def test_a_beta_that_means_nothing_is_refused(beta):
    with pytest.raises(ValueError, match=f"beta is {beta}"):
        entropic_advantages([1.0, 0.0], beta=beta)


def test_one_reward_is_no_group():
    with pytest.raises(ValueError, match=r"1 reward\(s\)"):
        entropic_advantages([1.0])
