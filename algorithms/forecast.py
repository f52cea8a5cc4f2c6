"""Where a run's own reward curve is heading: ScaleRL's sigmoid (`scaling`) fitted to it, with what is not known.

A curve seen halfway fits many ceilings about equally well, and the best fit alone does not tell: what is kept is the
posterior (`sigmoid_fit`), and every number comes with the interval that holds 90% of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from algorithms.scaling import SigmoidCurve
from algorithms.sigmoid_fit import best_curve, posterior
from algorithms.sigmoid_grid import Floats
from algorithms.sigmoid_lines import share

FEWEST_POINTS = 8
"""Points below which four parameters and a noise cannot be told apart."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A median, and the interval that holds 90% of the posterior."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]"


@dataclass(frozen=True)
class Forecast:
    """A fitted curve.

    Args:
        compute: of each point.
        rewards: of each point.
        box: the least and the most that a reward can be.
        curves: R0, A, B and Cmid of curves that the points allow, of shape (4, N).
        weights: how likely each is, of shape (N,); they add up to 1.
    """

    compute: Floats
    rewards: Floats
    box: tuple[float, float]
    curves: Floats
    weights: Floats

    @cached_property
    def best(self) -> SigmoidCurve:
        """The curve with the least squared error. It takes twenty times as long to find as all the others."""
        return SigmoidCurve(*best_curve(self.compute, self.rewards, self.box))

    def parameter(self, name: str) -> Estimate:
        """One of `SigmoidCurve`'s: "start", "ceiling", "steepness", "midpoint"."""
        return self._estimate(self.curves[SigmoidCurve.__slots__.index(name)])

    def reward(self, compute: float) -> Estimate:
        """The mean reward at `compute`, seen or not."""
        return self._estimate(self._rewards(compute))

    def gain(self, compute: float, times: float = 2.0) -> Estimate:
        """What the mean reward gains when `compute` becomes `times` as much."""
        return self._estimate(self._rewards(times * compute) - self._rewards(compute))

    def _rewards(self, compute: float) -> Floats:
        start_N, ceiling_N, steepness_N, midpoint_N = self.curves
        gone_N = share(np.float64(compute), steepness_N, midpoint_N)
        return np.asarray(start_N + (ceiling_N - start_N) * gone_N, dtype=np.float64)

    def _estimate(self, values_N: Floats) -> Estimate:
        order_N = np.argsort(values_N)
        places = np.searchsorted(np.cumsum(self.weights[order_N]), (0.05, 0.5, 0.95))
        low, middle, high = values_N[order_N[np.minimum(places, len(order_N) - 1)]]
        return Estimate(float(middle), float(low), float(high))


def forecast(
    compute: Sequence[float],
    rewards: Sequence[float],
    *,
    lowest: float = 0.0,
    highest: float = 1.0,
    noise: float = 0.0,
    seed: int = 0,
) -> Forecast:
    """Fit a curve.

    Args:
        compute: of each point, above 0, in any unit: cycles, tokens, operations.
        rewards: their mean rewards.
        lowest: the least a reward can be, which neither R0 nor A is below.
        highest: the most.
        noise: a standard deviation that each reward has at least, even where all are alike.
        seed: of the posterior's draws.

    Raises:
        ValueError: fewer than 8 points, not as many of one as of the other, compute that is not above 0, or a reward
            outside the range.
    """
    compute_T, rewards_T = np.asarray(compute, dtype=np.float64), np.asarray(rewards, dtype=np.float64)
    _require(compute_T, rewards_T, lowest, highest)
    box = lowest, highest
    curves_4N, weights_N = posterior(compute_T, rewards_T, box, np.random.default_rng(seed), noise)
    return Forecast(compute_T, rewards_T, box, curves_4N, weights_N)


def _require(compute_T: Floats, rewards_T: Floats, lowest: float, highest: float) -> None:
    if compute_T.shape != rewards_T.shape or compute_T.ndim != 1:
        raise ValueError(f"compute and rewards must be as many: {compute_T.shape} and {rewards_T.shape}")
    if len(compute_T) < FEWEST_POINTS:
        raise ValueError(f"a forecast needs {FEWEST_POINTS} points or more, and has {len(compute_T)}")
    if not (compute_T > 0).all():
        raise ValueError(f"compute must be above 0 everywhere, and is {compute_T.min():g} somewhere")
    if not ((rewards_T >= lowest) & (rewards_T <= highest)).all():
        least, most = rewards_T.min(), rewards_T.max()
        raise ValueError(f"rewards must be within {lowest:g}…{highest:g}, and run from {least:g} to {most:g}")
