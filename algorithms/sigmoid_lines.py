"""The straight line R0 + rise · share of every cell: given B and Cmid, a sigmoid's least squares are a formula.

Shapes: T points, K cells, C candidates of a cell.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from algorithms.sigmoid_grid import Floats, Range

TINY = 1e-9
"""Added to a divisor: where all points lie on one side of Cmid a line is hardly determined."""


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


def lines_of(share_KT: Floats, rewards_T: Floats, least_error: float = 0.0) -> Lines:
    """The best line of every cell, wherever it lies; its squared error is `least_error` at least."""
    points = len(rewards_T)
    sum_K, squares_K, products_K = share_KT.sum(axis=1), np.square(share_KT).sum(axis=1), share_KT @ rewards_T
    determinant_K = points * squares_K - np.square(sum_K) + TINY
    rise_K = (points * products_K - sum_K * rewards_T.sum()) / determinant_K
    start_K = (rewards_T.sum() - rise_K * sum_K) / points
    left_KT = rewards_T - start_K[:, None] - rise_K[:, None] * share_KT
    error_K = np.maximum(np.square(left_KT).sum(axis=1), least_error)
    return Lines(start_K, rise_K, sum_K, determinant_K, error_K)


def lines_within(share_KT: Floats, rewards_T: Floats, box: Range) -> tuple[Floats, Floats, Floats]:
    """R0, A and the squared error of the best line within `box`: a free one, or with one of the two at an end."""
    free, rest_KT = lines_of(share_KT, rewards_T), 1 - share_KT
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
