"""x·Wᵀ by the faster of two kernels."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from torch import Tensor


def _onednn() -> Any:
    """oneDNN's fp32 linear, which torch keeps for its compiler; not every build and machine has it."""
    if not torch.backends.mkldnn.is_available():
        return None
    return getattr(torch.ops.mkldnn, "_linear_pointwise", None)


_ONEDNN = _onednn()


def product(inputs: Tensor, weight: Tensor) -> Tensor:
    """[N, in] × [out, in] → [N, out], outside autograd.

    With the few rows of a decoding step oneDNN is 1.3 to 2 times as fast as the BLAS behind `F.linear` on the same
    plain weights, and not slower with many.
    """
    if _ONEDNN is None:
        return F.linear(inputs, weight)
    result: Tensor = _ONEDNN(inputs, weight, None, "none", [], "")
    return result
