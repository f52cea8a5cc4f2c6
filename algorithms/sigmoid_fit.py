"""ScaleRL's sigmoid through noisy points: its posterior and its least squares, both on a grid.

Given B and Cmid the curve is a straight line in R0 and A: least squares are a formula, and with flat priors and a noise
that is not known the posterior is a t distribution. So only B and Cmid need a grid, even in their logarithms, whose
cells are weighted by how well each explains the points. There is no start to choose and no minimum to be stuck in;
SciPy finds the same best fit (tests/algorithms/test_forecast.py).

Shapes: T points, K cells of the grid, D draws in a cell, N draws in all.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Range = tuple[float, float]

STEEPNESS_RANGE, STEEPNESS_PRIOR = (0.5, 8.0), (np.log(2.0), 0.5)
"""B's range, and the middle and width of its logarithm's normal prior: ScaleRL's fits have 1.8–2.2."""

MIDPOINT_RANGE = (0.5, 20.0)
"""Of Cmid: from half the first point's compute to 20 times the last one's. What is flat has it far to the right."""

FALLING = 0.05
"""How likely a curve that falls is beforehand, against one that rises. Half of its fall must have been seen: else a
reward that stands at the top, from which nothing can rise, would be told to have a fall before it."""

GRID, DRAWS = (24, 48), 24
"""Cells of B and of Cmid; draws of R0 and A in each."""

PASSES, UNLIKELY = 4, 10.0
"""How often the grid is narrowed to its likely cells, and the log-weight below the best's at which one is not."""

BEST_PASSES, BEST_CELLS = 16, 8
"""How often it is narrowed to the cells that fit best, and to how many."""

TINY = 1e-9
"""Added to a divisor: where all points lie on one side of Cmid a line is hardly determined."""

LEAST_NOISE = 1e-6
"""Points without any noise are taken to have so much, as a share of the reward's range, unless said otherwise."""


class Lines(NamedTuple):
    """Of every cell the line R0 + rise · share through the points, and the sums it comes from; each of shape (K,)."""

    start: Floats
    rise: Floats
    sum: Floats
    determinant: Floats
    error: Floats


def share(compute: Floats | np.float64, steepness: Floats, midpoint: Floats) -> Floats:
    """The share of the way from R0 to A that is gone at `compute`."""
    return np.asarray(1 / (1 + (midpoint / compute) ** steepness), dtype=np.float64)


def posterior(
    compute_T: Floats, rewards_T: Floats, box: Range, rng: np.random.Generator, noise: float = 0.0
) -> tuple[Floats, Floats]:
    """Curves (R0, A, B, Cmid), of shape (4, N), and their weights, of shape (N,); R0 and A lie in `box`.

    `noise`: what the points have at least, in their unit, however well a curve goes through them.
    Where what explains the points best lies outside, a straight rise for one, each cell's best within stands for it.
    """
    least_error = len(rewards_T) * max(noise, LEAST_NOISE * (box[1] - box[0])) ** 2
    b_K, m_K, lines, log_weight_K = _likely_cells(compute_T, rewards_T, least_error)
    start_KD, rise_KD = _draws(lines, len(rewards_T), rng)
    ceiling_KD = start_KD + rise_KD
    inside_KD = (np.minimum(start_KD, ceiling_KD) >= box[0]) & (np.maximum(start_KD, ceiling_KD) <= box[1])
    falling_K = np.where(m_K <= compute_T.max(), FALLING, 0.0)
    likely_KD = np.where(rise_KD >= 0, 1.0, falling_K[:, None])
    weights_KD = np.exp(log_weight_K - log_weight_K.max())[:, None] * inside_KD * likely_KD
    kept_KD = weights_KD > 0
    if not kept_KD.any():
        return _at_the_edge(compute_T, rewards_T, box, least_error)
    every_KD = (start_KD, ceiling_KD, *(np.broadcast_to(x_K[:, None], start_KD.shape) for x_K in (b_K, m_K)))
    weights_N = weights_KD[kept_KD]
    return np.stack([x_KD[kept_KD] for x_KD in every_KD]), weights_N / weights_N.sum()


def best_curve(compute_T: Floats, rewards_T: Floats, box: Range) -> tuple[float, float, float, float]:
    """R0, A, B, Cmid of the least squared error, R0 and A within `box`: the grid closes in on it."""
    ranges = _whole(compute_T)
    for _ in range(BEST_PASSES):
        b_K, m_K = _grid(*ranges)
        share_KT = share(compute_T, b_K[:, None], m_K[:, None])
        start_K, ceiling_K, error_K = _within(share_KT, rewards_T, box)
        near_K = error_K <= np.partition(error_K, BEST_CELLS)[BEST_CELLS]
        ranges = _narrowed(b_K, near_K, GRID[0]), _narrowed(m_K, near_K, GRID[1])
    at = int(error_K.argmin())
    return float(start_K[at]), float(ceiling_K[at]), float(b_K[at]), float(m_K[at])


def _likely_cells(compute_T: Floats, rewards_T: Floats, least_error: float) -> tuple[Floats, Floats, Lines, Floats]:
    ranges, freedom = _whole(compute_T), len(rewards_T) - 2
    for _ in range(PASSES):
        b_K, m_K = _grid(*ranges)
        lines = _lines(share(compute_T, b_K[:, None], m_K[:, None]), rewards_T, least_error)
        # R0, the rise and the noise are integrated out; the prior of B beside.
        log_weight_K = -0.5 * (np.log(lines.determinant) + freedom * np.log(lines.error))
        log_weight_K += _log_prior(b_K)
        likely_K = log_weight_K > log_weight_K.max() - UNLIKELY
        ranges = _narrowed(b_K, likely_K, GRID[0]), _narrowed(m_K, likely_K, GRID[1])
    return b_K, m_K, lines, log_weight_K


def _at_the_edge(compute_T: Floats, rewards_T: Floats, box: Range, least_error: float) -> tuple[Floats, Floats]:
    """One curve of each cell, the best within the box, and its weight."""
    ranges = _whole(compute_T)
    for _ in range(PASSES):
        b_K, m_K = _grid(*ranges)
        start_K, ceiling_K, error_K = _within(share(compute_T, b_K[:, None], m_K[:, None]), rewards_T, box)
        log_weight_K = -0.5 * (len(rewards_T) - 2) * np.log(np.maximum(error_K, least_error))
        log_weight_K += _log_prior(b_K)
        log_weight_K[(ceiling_K < start_K) & (m_K > compute_T.max())] = -np.inf
        likely_K = log_weight_K > log_weight_K.max() - UNLIKELY
        ranges = _narrowed(b_K, likely_K, GRID[0]), _narrowed(m_K, likely_K, GRID[1])
    weights_K = np.exp(log_weight_K - log_weight_K.max())
    return np.stack([start_K, ceiling_K, b_K, m_K]), weights_K / weights_K.sum()


def _log_prior(steepness: Floats) -> Floats:
    middle, width = STEEPNESS_PRIOR
    return np.asarray(-0.5 * np.square((np.log(steepness) - middle) / width), dtype=np.float64)


def _lines(share_KT: Floats, rewards_T: Floats, least_error: float = 0.0) -> Lines:
    points = len(rewards_T)
    sum_K, squares_K, products_K = share_KT.sum(axis=1), np.square(share_KT).sum(axis=1), share_KT @ rewards_T
    determinant_K = points * squares_K - np.square(sum_K) + TINY
    rise_K = (points * products_K - sum_K * rewards_T.sum()) / determinant_K
    start_K = (rewards_T.sum() - rise_K * sum_K) / points
    left_KT = rewards_T - start_K[:, None] - rise_K[:, None] * share_KT
    error_K = np.maximum(np.square(left_KT).sum(axis=1), least_error)
    return Lines(start_K, rise_K, sum_K, determinant_K, error_K)


def _draws(lines: Lines, points: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """R0 and the rise, each of shape (K, D), from every cell's t distribution."""
    freedom, shape = points - 2, (len(lines.start), DRAWS)
    noise_KD = np.sqrt(lines.error[:, None] / rng.chisquare(freedom, shape))
    rise_KD = noise_KD * rng.standard_normal(shape) * np.sqrt(points / lines.determinant)[:, None]
    # R0 given the rise: the line turns about the points' middle.
    turned_KD = rise_KD * (lines.sum / points)[:, None]
    start_KD = lines.start[:, None] - turned_KD + noise_KD * rng.standard_normal(shape) / np.sqrt(points)
    return start_KD, lines.rise[:, None] + rise_KD


def _within(share_KT: Floats, rewards_T: Floats, box: Range) -> tuple[Floats, Floats, Floats]:
    """R0, A and the squared error of the best line within `box`: a free one, or with one of the two at an end."""
    free, rest_KT = _lines(share_KT, rewards_T), 1 - share_KT
    candidates = [(free.start, free.start + free.rise)]
    for end in box:
        at_end_K = np.full_like(free.start, end)
        start_K = ((rewards_T - end * share_KT) * rest_KT).sum(axis=1) / (np.square(rest_KT).sum(axis=1) + TINY)
        ceiling_K = ((rewards_T - end * rest_KT) * share_KT).sum(axis=1) / (np.square(share_KT).sum(axis=1) + TINY)
        candidates += [(start_K, at_end_K), (at_end_K, ceiling_K)]
    start_CK, ceiling_CK = (np.clip(np.stack(x), *box) for x in zip(*candidates, strict=True))
    fitted_CKT = start_CK[:, :, None] * rest_KT + ceiling_CK[:, :, None] * share_KT
    error_CK = np.square(rewards_T - fitted_CKT).sum(axis=2)
    best_K, cell_K = error_CK.argmin(axis=0), np.arange(len(share_KT))
    return start_CK[best_K, cell_K], ceiling_CK[best_K, cell_K], error_CK[best_K, cell_K]


def _whole(compute_T: Floats) -> tuple[Range, Range]:
    return STEEPNESS_RANGE, (MIDPOINT_RANGE[0] * float(compute_T.min()), MIDPOINT_RANGE[1] * float(compute_T.max()))


def _grid(steepness: Range, midpoint: Range) -> tuple[Floats, Floats]:
    """B and Cmid of every cell, even in their logarithms."""
    axes = (np.geomspace(*ends, count) for ends, count in zip((steepness, midpoint), GRID, strict=True))
    b_SM, m_SM = np.meshgrid(*axes, indexing="ij")
    return b_SM.ravel(), m_SM.ravel()


def _narrowed(x_K: Floats, chosen_K: NDArray[np.bool_], count: int) -> Range:
    """The range of the chosen cells, and one cell more on either side that is still in the grid."""
    low, high = float(x_K.min()), float(x_K.max())
    cell = (high / low) ** (1 / (count - 1))
    return max(low, float(x_K[chosen_K].min()) / cell), min(high, float(x_K[chosen_K].max()) * cell)
