"""The cells of B and Cmid, even in their logarithms, that a sigmoid is looked for in, closing in on the likely ones.

Shapes: T points, K cells, S of B, M of Cmid.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Chosen = NDArray[np.bool_]
Range = tuple[float, float]

STEEPNESS_RANGE = (0.5, 8.0)
"""Of B; ScaleRL's fits have 1.8–2.2."""

MIDPOINT_RANGE = (0.5, 20.0)
"""Of Cmid: from half the first point's compute to 20 times the last one's. What is flat has it far to the right."""

CELLS = (24, 48)
"""Of B and of Cmid."""


def whole(compute_T: Floats) -> tuple[Range, Range]:
    """The ranges of B and Cmid to begin with."""
    return STEEPNESS_RANGE, (MIDPOINT_RANGE[0] * float(compute_T.min()), MIDPOINT_RANGE[1] * float(compute_T.max()))


def grid(steepness: Range, midpoint: Range) -> tuple[Floats, Floats]:
    """B and Cmid of every cell, even in their logarithms."""
    axes = (np.geomspace(*ends, count) for ends, count in zip((steepness, midpoint), CELLS, strict=True))
    b_SM, m_SM = np.meshgrid(*axes, indexing="ij")
    return b_SM.ravel(), m_SM.ravel()


def narrowed(b_K: Floats, m_K: Floats, chosen_K: Chosen) -> tuple[Range, Range]:
    """The ranges of the chosen cells, and one cell more on every side that is still in the grid."""
    return _narrowed(b_K, chosen_K, CELLS[0]), _narrowed(m_K, chosen_K, CELLS[1])


def _narrowed(x_K: Floats, chosen_K: Chosen, count: int) -> Range:
    low, high = float(x_K.min()), float(x_K.max())
    cell = (high / low) ** (1 / (count - 1))
    return max(low, float(x_K[chosen_K].min()) / cell), min(high, float(x_K[chosen_K].max()) * cell)
