import random
from collections.abc import Callable
from math import sqrt
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithms.intervals import Z95, Interval, clustered_interval, difference_interval, wilson_interval
from algorithms.passk import pass_at_k

SHARES = st.lists(st.floats(0, 1), min_size=1, max_size=40)
PROMPTS, SAMPLES = 24, 4  # what the shipped sets and `evaluation.samples` have


def drawn(rng: random.Random, a: float, b: float, *, samples: int = SAMPLES) -> list[int]:
    """Correct completions of each prompt; how hard prompts are has a beta distribution."""
    return [
        sum(rng.random() < chance for _ in range(samples)) for chance in (rng.betavariate(a, b) for _ in range(PROMPTS))
    ]


def coverage(interval: Callable[[random.Random], Interval], truth: float, *, trials: int = 1_000) -> float:
    """The share of the intervals that hold the truth."""
    rng = random.Random(0)
    return fmean(low <= truth <= high for low, high in (interval(rng) for _ in range(trials)))


def test_wilsons_interval_is_the_published_one() -> None:
    # Newcombe 1998 (Stat. Med. 17, 857), table I: 81 of 263, 15 of 148, 0 of 20, 1 of 29.
    published = {
        (81, 263): (0.2553, 0.3662),
        (15, 148): (0.0624, 0.1605),
        (0, 20): (0, 0.1611),
        (1, 29): (0.0061, 0.1718),
    }
    for (correct, draws), bounds in published.items():
        assert wilson_interval(correct / draws, draws) == pytest.approx(bounds, abs=5e-5)


@pytest.mark.parametrize(("a", "b"), [(0.3, 0.3), (2, 2), (20, 20), (0.2, 2), (0.5, 20), (5, 0.2)])
def test_an_interval_holds_the_truth_nine_times_of_ten_or_more_however_hard_the_prompts_are(a: float, b: float) -> None:
    def ours(rng: random.Random) -> Interval:
        return clustered_interval([count / SAMPLES for count in drawn(rng, a, b)], SAMPLES)

    assert coverage(ours, a / (a + b)) >= 0.9


def test_counting_completions_as_if_they_were_prompts_does_not() -> None:
    def naive(rng: random.Random) -> Interval:
        mean = sum(drawn(rng, 0.3, 0.3)) / (PROMPTS * SAMPLES)
        half = Z95 * sqrt(mean * (1 - mean) / (PROMPTS * SAMPLES))
        return mean - half, mean + half

    assert coverage(naive, 0.5) < 0.8


def test_an_interval_of_pass_at_k_holds_the_truth_too() -> None:
    # With beta(1, 3), 1 − E[(1 − p)²] is 1 − 3 · 4 / (4 · 5).
    def ours(rng: random.Random) -> Interval:
        return clustered_interval([pass_at_k(SAMPLES, count, 2) for count in drawn(rng, 1, 3)], SAMPLES)

    assert coverage(ours, 1 - 12 / 20) >= 0.92


@given(SHARES, st.integers(1, 16))
def test_an_interval_never_collapses_never_leaves_0_to_1_and_holds_its_mean(values: list[float], samples: int) -> None:
    low, high = clustered_interval(values, samples)
    assert 0 <= low <= fmean(values) <= high <= 1
    assert high - low > 0.5 / (len(values) * samples + 4)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_where_all_is_wrong_or_right_it_is_the_prompts_that_count(share: float) -> None:
    assert clustered_interval([share] * 24, 4) == clustered_interval([share] * 24, 1) == wilson_interval(share, 24)


def test_prompts_that_are_all_right_or_all_wrong_count_once_each() -> None:
    assert clustered_interval([0.0, 1.0] * 12, samples=4) == wilson_interval(0.5, 24)


def test_alike_prompts_count_by_the_completion_and_no_further() -> None:
    assert clustered_interval([0.45, 0.55] * 12, samples=4) == wilson_interval(0.5, 96)


@pytest.mark.parametrize("values", [[], [0.5, 1.5], [-0.1]])
def test_what_is_no_share_is_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match=r"of values in 0…1, one a prompt, and not of \["):
        clustered_interval(values)


@pytest.mark.parametrize("gain", [0.0, 0.02, 0.3])
@pytest.mark.parametrize(("a", "b"), [(2, 4), (0.3, 3), (1, 40)])
def test_a_difference_holds_the_truth_however_hard_the_prompts_are(gain: float, a: float, b: float) -> None:
    def chance(p: float) -> float:  # of a prompt that was answered with p, after training
        return p + (1 - p) * gain

    def ours(rng: random.Random) -> Interval:
        chances = [rng.betavariate(a, b) for _ in range(PROMPTS)]
        before, after = (
            [sum(rng.random() < one for _ in range(SAMPLES)) / SAMPLES for one in each]
            for each in (chances, list(map(chance, chances)))
        )
        return difference_interval(before, after, SAMPLES)

    assert coverage(ours, gain * b / (a + b), trials=400) >= 0.92


@pytest.mark.parametrize("table", [(14, 5, 0, 22), (1, 1, 7, 12), (59, 6, 16, 80), (0, 3, 4, 0), (5, 0, 0, 5)])
def test_with_one_completion_a_prompt_a_difference_is_newcombes_method_10(table: tuple[int, int, int, int]) -> None:
    both, lost, won, neither = table  # right before and after, before only, after only, never
    n = sum(table)
    p1, p2 = (both + won) / n, (both + lost) / n
    (l1, u1), (l2, u2) = wilson_interval(p1, n), wilson_interval(p2, n)
    product = both * neither - lost * won
    corrected = product - n / 2 if product > n / 2 else min(product, 0)
    phi = corrected / sqrt((both + lost) * (won + neither) * (both + won) * (lost + neither))
    low = p1 - p2 - sqrt((p1 - l1) ** 2 - 2 * phi * (p1 - l1) * (u2 - p2) + (u2 - p2) ** 2)
    high = p1 - p2 + sqrt((u1 - p1) ** 2 - 2 * phi * (u1 - p1) * (p2 - l2) + (p2 - l2) ** 2)
    before = [1.0] * (both + lost) + [0.0] * (won + neither)
    after = [1.0] * both + [0.0] * lost + [1.0] * won + [0.0] * neither
    assert difference_interval(before, after) == pytest.approx((low, high))


def test_hard_and_easy_prompts_fall_out_of_a_difference() -> None:
    before, after = [0.0, 0.75] * 12, [0.25, 1.0] * 12
    low, high = difference_interval(before, after, SAMPLES)
    apart = clustered_interval(after, SAMPLES)[0] - clustered_interval(before, SAMPLES)[1]
    assert apart < 0 < low < 0.25 < high


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=40), st.integers(1, 8))
def test_a_difference_never_collapses_never_leaves_its_range_and_holds_its_mean(
    pairs: list[tuple[float, float]], samples: int
) -> None:
    before, after = zip(*pairs, strict=True)
    low, high = difference_interval(before, after, samples)
    assert -1 <= low <= fmean(after) - fmean(before) <= high <= 1
    assert high - low > 0.2 / (len(pairs) * samples)


def test_a_difference_of_other_prompts_is_refused() -> None:
    with pytest.raises(ValueError, match="2 values before and 1 after: a pair for every prompt is needed"):
        difference_interval([0.5, 0.5], [0.5])
