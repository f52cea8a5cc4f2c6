from fractions import Fraction
from itertools import combinations
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithms.passk import pass_at_k

SMALL = [
    (samples, correct, k) for samples in range(1, 8) for correct in range(samples + 1) for k in range(1, samples + 1)
]


def test_it_is_the_share_of_all_picks_of_k_completions_that_hold_a_correct_one() -> None:
    for samples, correct, k in SMALL:
        picks = list(combinations(range(samples), k))
        holding = sum(any(one < correct for one in pick) for pick in picks)
        assert pass_at_k(samples, correct, k) == holding / len(picks)


def test_it_is_unbiased_over_everything_that_can_be_drawn() -> None:
    p = Fraction(3, 10)
    for samples, k in [(1, 1), (4, 2), (6, 6), (8, 3)]:
        expected = sum(
            comb(samples, c) * p**c * (1 - p) ** (samples - c) * Fraction(pass_at_k(samples, c, k))
            for c in range(samples + 1)
        )
        assert float(expected) == pytest.approx(float(1 - (1 - p) ** k), abs=1e-15)


def test_what_one_might_write_instead_is_too_low() -> None:
    assert pass_at_k(8, 2, 4) > 1 - (1 - 2 / 8) ** 4


def test_with_one_try_it_is_the_accuracy_and_with_all_of_them_whether_one_was_correct() -> None:
    assert pass_at_k(7, 3, 1) == 3 / 7
    assert [pass_at_k(7, correct, 7) for correct in (0, 1, 7)] == [0, 1, 1]


@pytest.mark.parametrize("k", [1, 10, 5_000, 10_000])
def test_ten_thousand_completions_lose_no_digit(k: int) -> None:
    exact = 1 - Fraction(comb(9_999, k), comb(10_000, k))
    assert pass_at_k(10_000, 1, k) == float(exact) == pytest.approx(k / 10_000, rel=1e-15)


@given(st.integers(1, 60).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_more_tries_or_more_correct_ones_never_lower_it(case: tuple[int, int, int]) -> None:
    samples, correct, k = case
    value = pass_at_k(samples, correct, k)
    assert 0 <= value <= 1
    assert k == samples or pass_at_k(samples, correct, k + 1) >= value
    assert correct == samples or pass_at_k(samples, correct + 1, k) >= value


@pytest.mark.parametrize("k", [0, 5])
def test_more_tries_than_completions_are_refused_with_the_way_out(k: int) -> None:
    with pytest.raises(ValueError, match=rf"pass@{k} cannot be told from 4 .*draw more, or take a smaller k"):
        pass_at_k(4, 2, k)


@pytest.mark.parametrize("correct", [-1, 5])
def test_more_correct_ones_than_completions_are_refused(correct: int) -> None:
    with pytest.raises(ValueError, match=f"correct = {correct}: must be 0 to 4"):
        pass_at_k(4, correct, 1)
