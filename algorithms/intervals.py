"""95% confidence intervals of what is measured on held-out prompts, several completions each.

Completions of one prompt are alike: 4 of each of 24 prompts tell less than 96 of as many prompts would. So prompts are
what is counted (clustered standard errors, arXiv 2411.00640), and the interval is a Wilson score, which neither leaves
[0, 1] nor collapses to a point where everything is right or wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from statistics import NormalDist, fmean, pstdev, variance

Z95 = NormalDist().inv_cdf(0.975)
"""Standard deviations that 95% of a normal distribution lies within: 1.96."""

Interval = tuple[float, float]


def wilson_interval(mean: float, draws: float) -> Interval:
    """The interval of a share of `draws` independent yes-or-no outcomes (Wilson 1927, J. Am. Stat. Assoc. 22, 209)."""
    weight = Z95 * Z95 / draws
    middle = (mean + weight / 2) / (1 + weight)
    half = Z95 * sqrt(mean * (1 - mean) / draws + weight / (4 * draws)) / (1 + weight)
    # A share is in its own interval, whatever the last bit says.
    return max(0.0, min(mean, middle - half)), min(1.0, max(mean, middle + half))


def clustered_interval(values: Sequence[float], samples: int = 1) -> Interval:
    """The interval of the mean of `values`, one in 0…1 a prompt, each from `samples` completions.

    Wilson's, with as many draws as would have the standard error SE of the prompts' values: p (1 − p) / SE². Those are
    at least the prompts, and at most all completions; where SE is 0, they are the prompts.

    Raises:
        ValueError: no values, or one outside 0…1.
    """
    if not values or min(values) < 0 or max(values) > 1:
        raise ValueError(f"an interval is of values in 0…1, one a prompt, and not of {list(values[:8])}")
    prompts, mean = len(values), fmean(values)
    squared_error = variance(values) / prompts if prompts > 1 else 0.0
    draws = mean * (1 - mean) / squared_error if squared_error else prompts
    return wilson_interval(mean, min(max(draws, prompts), prompts * samples))


def difference_interval(before: Sequence[float], after: Sequence[float], samples: int = 1) -> Interval:
    """The interval of mean(after) − mean(before) on the same prompts, in the same order; each as `clustered_interval`.

    The two means' intervals, joined by how alike the prompts' values are, so that hard and easy prompts fall out:
    Newcombe's method 10 (1998, Stat. Med. 17, 2635), whose correction for a positive correlation, half a draw, is taken
    of all completions here. It stays within −1…1 and never collapses.

    Raises:
        ValueError: not the same number of values, or as `clustered_interval`.
    """
    if len(before) != len(after):
        raise ValueError(f"{len(before)} values before and {len(after)} after: a pair for every prompt is needed")
    (low, high), (new_low, new_high) = clustered_interval(before, samples), clustered_interval(after, samples)
    old, new = fmean(before), fmean(after)
    alike = fmean((a - old) * (b - new) for a, b in zip(before, after, strict=True))
    spread = pstdev(before) * pstdev(after)
    phi = min(alike, max(0.0, alike - 1 / (2 * len(before) * samples))) / spread if spread else 0.0

    def joined(one: float, other: float) -> float:
        return sqrt(max(0.0, one * one - 2 * phi * one * other + other * other))

    gain = new - old
    return max(-1.0, gain - joined(new - new_low, high - old)), min(1.0, gain + joined(new_high - new, old - low))
