"""95% confidence intervals of what is measured on held-out prompts, several completions each.

Completions of one prompt are alike: 4 of each of 24 prompts tell less than 96 of as many prompts would. So prompts are
what is counted (clustered standard errors, arXiv 2411.00640), and the interval is a Wilson score, which neither leaves
[0, 1] nor collapses to a point where everything is right or wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from statistics import NormalDist, fmean, variance

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


def difference_interval(before: Sequence[float], after: Sequence[float]) -> Interval:
    """The interval of mean(after) − mean(before), measured on the same prompts; values in 0…1, in the same order.

    Prompt by prompt, so that hard and easy ones fall out (arXiv 2411.00640, section 4.2). Half a prompt of each kind is
    added — lost, won, and two halves without change — so that it does not collapse where all prompts change alike
    (Agresti and Min 2005, Stat. Med. 24, 729).

    Raises:
        ValueError: not the same number of values, or none.
    """
    if not before or len(before) != len(after):
        raise ValueError(f"{len(before)} values before and {len(after)} after: a pair for every prompt is needed")
    changes = [late - early for early, late in zip(before, after, strict=True)]
    prompts = len(changes) + 2
    mean = sum(changes) / prompts
    spread = (sum(change * change for change in changes) + 1) / prompts - mean * mean
    half = Z95 * sqrt(spread / prompts)
    return max(-1.0, mean - half), min(1.0, mean + half)
