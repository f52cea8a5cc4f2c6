"""ScaleRL's sigmoid through noisy points: its posterior and its least squares, both on a grid.

Given B and Cmid the curve is a straight line in R0 and A: least squares are a formula, and with flat priors and a noise
that is not known the posterior is a t distribution. So only B and Cmid need a grid (`sigmoid_grid`), whose cells are
weighted by how well each one's line (`sigmoid_lines`) explains the points. There is no start to choose and no minimum
to be stuck in; SciPy finds the same best fit (tests/algorithms/test_forecast.py).

Shapes: T points, K cells of the grid, D draws in a cell, N draws in all.
"""

from __future__ import annotations

import numpy as np

from algorithms.sigmoid_grid import Floats, Range, grid, narrowed, whole
from algorithms.sigmoid_lines import Lines, lines_of, lines_within, share

STEEPNESS_PRIOR = (np.log(2.0), 0.5)
"""The middle and width of the normal prior of B's logarithm."""

FALLING = 0.05
"""How likely a curve that falls is beforehand, against one that rises. Half of its fall must have been seen: else a
reward that stands at the top, from which nothing can rise, would be told to have a fall before it."""

PASSES, UNLIKELY = 4, 10.0
"""How often the grid is narrowed to its likely cells, and the log-weight below the best's at which one is not."""

BEST_PASSES, BEST_CELLS = 16, 8
"""How often it is narrowed to the cells that fit best, and to how many."""

DRAWS = 24
"""Of R0 and A in each cell."""

LEAST_NOISE = 1e-6
"""Points without any noise are taken to have so much, as a share of the reward's range, unless said otherwise."""


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
    ranges = whole(compute_T)
    for _ in range(BEST_PASSES):
        b_K, m_K = grid(*ranges)
        share_KT = share(compute_T, b_K[:, None], m_K[:, None])
        start_K, ceiling_K, error_K = lines_within(share_KT, rewards_T, box)
        near_K = error_K <= np.partition(error_K, BEST_CELLS)[BEST_CELLS]
        ranges = narrowed(b_K, m_K, near_K)
    at = int(error_K.argmin())
    return float(start_K[at]), float(ceiling_K[at]), float(b_K[at]), float(m_K[at])


def _likely_cells(compute_T: Floats, rewards_T: Floats, least_error: float) -> tuple[Floats, Floats, Lines, Floats]:
    ranges, freedom = whole(compute_T), len(rewards_T) - 2
    for _ in range(PASSES):
        b_K, m_K = grid(*ranges)
        lines = lines_of(share(compute_T, b_K[:, None], m_K[:, None]), rewards_T, least_error)
        # R0, the rise and the noise are integrated out; the prior of B beside.
        log_weight_K = -0.5 * (np.log(lines.determinant) + freedom * np.log(lines.error))
        log_weight_K += _log_prior(b_K)
        likely_K = log_weight_K > log_weight_K.max() - UNLIKELY
        ranges = narrowed(b_K, m_K, likely_K)
    return b_K, m_K, lines, log_weight_K


def _at_the_edge(compute_T: Floats, rewards_T: Floats, box: Range, least_error: float) -> tuple[Floats, Floats]:
    """One curve of each cell, the best within the box, and its weight."""
    ranges = whole(compute_T)
    for _ in range(PASSES):
        b_K, m_K = grid(*ranges)
        start_K, ceiling_K, error_K = lines_within(share(compute_T, b_K[:, None], m_K[:, None]), rewards_T, box)
        log_weight_K = -0.5 * (len(rewards_T) - 2) * np.log(np.maximum(error_K, least_error))
        log_weight_K += _log_prior(b_K)
        log_weight_K[(ceiling_K < start_K) & (m_K > compute_T.max())] = -np.inf
        likely_K = log_weight_K > log_weight_K.max() - UNLIKELY
        ranges = narrowed(b_K, m_K, likely_K)
    weights_K = np.exp(log_weight_K - log_weight_K.max())
    return np.stack([start_K, ceiling_K, b_K, m_K]), weights_K / weights_K.sum()


def _log_prior(steepness: Floats) -> Floats:
    middle, width = STEEPNESS_PRIOR
    return np.asarray(-0.5 * np.square((np.log(steepness) - middle) / width), dtype=np.float64)


def _draws(lines: Lines, points: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """R0 and the rise, each of shape (K, D), from every cell's t distribution."""
    freedom, shape = points - 2, (len(lines.start), DRAWS)
    noise_KD = np.sqrt(lines.error[:, None] / rng.chisquare(freedom, shape))
    rise_KD = noise_KD * rng.standard_normal(shape) * np.sqrt(points / lines.determinant)[:, None]
    # R0 given the rise: the line turns about the points' middle.
    turned_KD = rise_KD * (lines.sum / points)[:, None]
    start_KD = lines.start[:, None] - turned_KD + noise_KD * rng.standard_normal(shape) / np.sqrt(points)
    return start_KD, lines.rise[:, None] + rise_KD
