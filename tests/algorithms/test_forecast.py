from statistics import fmean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import curve_fit

from algorithms.forecast import forecast
from algorithms.scaling import SigmoidCurve

CISPO = SigmoidCurve(start=0.2, ceiling=0.58, steepness=2.2, midpoint=3000)
COMPUTE = [float(c) for c in np.geomspace(200, 20_000, 40)]


def test_the_sigmoid_has_its_published_values() -> None:
    assert CISPO.reward(3000) == pytest.approx(0.39)
    assert CISPO.reward(6000) == pytest.approx(0.51208, abs=5e-6)
    assert CISPO.reward(1000) == pytest.approx(0.23112, abs=5e-6)
    assert CISPO.reward(0) == 0.2
    assert CISPO.gain(3000) == pytest.approx(0.12208, abs=5e-6)


@given(st.floats(-1, 0.4), st.floats(0.5, 2), st.floats(0.5, 5), st.floats(1e-3, 1e6), st.floats(0.01, 0.99))
def test_the_inverse_finds_the_compute_back(start: float, end: float, b: float, middle: float, share: float) -> None:
    for curve in (SigmoidCurve(start, end, b, middle), SigmoidCurve(end, start, b, middle)):
        target = curve.start + share * (curve.ceiling - curve.start)
        assert curve.reward(curve.compute_for(target)) == pytest.approx(target, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("reward", [0.2, 0.58, 0.1, 0.9])
def test_a_reward_that_no_compute_reaches_is_refused(reward: float) -> None:
    with pytest.raises(ValueError, match=r"runs from 0\.2 to 0\.58 and does not cross"):
        CISPO.compute_for(reward)


def test_a_curve_must_have_a_slope_and_a_middle() -> None:
    with pytest.raises(ValueError, match="steepness must be above 0, and is 0"):
        SigmoidCurve(0, 1, 0, 1)


def test_a_fit_to_a_curve_without_noise_is_the_curve() -> None:
    found = forecast(COMPUTE, [CISPO.reward(c) for c in COMPUTE]).best
    assert (found.start, found.ceiling) == pytest.approx((0.2, 0.58), abs=1e-6)
    assert (found.steepness, found.midpoint) == pytest.approx((2.2, 3000), rel=1e-5)


def test_a_fit_to_a_noisy_curve_is_scipy_s_and_holds_the_truth_within_its_stated_error() -> None:
    rng = np.random.default_rng(0)
    noisy = [CISPO.reward(c) + rng.normal(0, 0.01) for c in COMPUTE]
    fit = forecast(COMPUTE, noisy)
    ours = (fit.best.start, fit.best.ceiling, fit.best.steepness, fit.best.midpoint)
    scipys, _ = curve_fit(
        lambda c, r, a, b, m: r + (a - r) / (1 + (m / c) ** b),
        COMPUTE,
        noisy,
        p0=[0.3, 0.5, 1, 999],
        bounds=(1e-9, np.inf),
    )
    assert ours == pytest.approx(tuple(scipys), rel=1e-3)
    for name in SigmoidCurve.__slots__:
        estimate = fit.parameter(name)
        assert estimate.low <= getattr(CISPO, name) <= estimate.high
    assert fit.parameter("ceiling").high - fit.parameter("ceiling").low < 0.03


def test_intervals_hold_what_comes_four_times_of_five_or_more_where_half_of_the_way_was_seen() -> None:
    rng, held = np.random.default_rng(0), []
    cycles = range(1, 31)
    for _ in range(20):
        curve = SigmoidCurve(rng.uniform(0, 0.4), rng.uniform(0.6, 1), rng.uniform(1.2, 3), rng.uniform(10, 40))
        shares = rng.binomial(256, [curve.reward(c) for c in cycles]) / 256  # 256 completions a cycle
        fit = forecast([float(c) for c in cycles], [float(share) for share in shares])
        ahead, gain = fit.reward(60), fit.gain(30)
        held += [ahead.low <= curve.reward(60) <= ahead.high, gain.low <= curve.gain(30) <= gain.high]
    assert fmean(held) >= 0.8


def test_a_curve_seen_only_at_its_foot_says_that_its_ceiling_is_not_known() -> None:
    rng = np.random.default_rng(1)
    early = [max(0.0, CISPO.reward(c) + rng.normal(0, 0.01)) for c in np.linspace(50, 1500, 30)]
    ceiling = forecast([float(c) for c in np.linspace(50, 1500, 30)], early).parameter("ceiling")
    assert ceiling.high - ceiling.low > 0.3


def test_what_is_flat_promises_nothing_and_what_falls_falls_on() -> None:
    rng = np.random.default_rng(2)
    cycles = [float(c) for c in range(1, 31)]
    flat = forecast(cycles, [0.5 + rng.normal(0, 0.02) for _ in cycles]).gain(30)
    assert flat.low <= 0.01
    assert flat.high < 0.1
    falling = forecast(cycles, [0.8 - 0.015 * c + rng.normal(0, 0.02) for c in cycles]).gain(30)
    assert falling.high < 0


def test_a_reward_that_stands_at_the_top_is_not_foretold_to_fall() -> None:
    rng, cycles = np.random.default_rng(3), [float(c) for c in range(1, 21)]
    for rewards in ([1.0] * 20, [float(1 - abs(rng.normal(0, 0.001))) for _ in cycles]):
        fit = forecast(cycles, rewards)
        assert fit.parameter("ceiling").low > 0.99
        assert abs(fit.gain(20).value) < 1e-3


def test_points_that_the_range_has_no_room_for_are_explained_by_the_nearest_curves_within_it() -> None:
    cycles = [float(c) for c in range(1, 17)]
    straight = forecast(cycles, [0.05 + 0.05 * c for c in cycles])
    assert 0.85 < straight.reward(32).value <= straight.parameter("ceiling").high <= 1
    fallen = forecast(cycles, [1.0] + [0.0] * 15)
    assert fallen.reward(32).high < 0.1


def test_rewards_beyond_0_to_1_have_their_own_range() -> None:
    scaled = [3 * CISPO.reward(c) - 1 for c in COMPUTE]
    assert forecast(COMPUTE, scaled, lowest=-1, highest=2).best.ceiling == pytest.approx(0.74, abs=1e-5)


@pytest.mark.parametrize(
    ("compute", "rewards", "message"),
    [
        ([1.0] * 7, [0.5] * 7, "needs 8 points or more, and has 7"),
        ([1.0] * 9, [0.5] * 8, "must be as many"),
        ([0.0] * 8, [0.5] * 8, "above 0 everywhere"),
        ([1.0] * 8, [1.5] * 8, "within 0…1"),
    ],
)
def test_points_that_cannot_be_fitted_are_refused(compute: list[float], rewards: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        forecast(compute, rewards)
