"""AdamW (arXiv 1711.05101) on a run's flat vector, with every parameter of the contract."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gateway.providers.local.errors import EngineError


@dataclass
class Moments:
    """Adam's running means of the gradient and of its square, and the steps taken."""

    mean: Tensor
    square: Tensor
    step: int = 0

    @classmethod
    def zeros(cls, size: int) -> Moments:
        """As before the first step."""
        return cls(torch.zeros(size), torch.zeros(size))


def adamw_step(parameters: Tensor, gradient: Tensor, moments: Moments, options: Mapping[str, Any]) -> dict[str, float]:
    """One step in place; `gradient` is used up.

    Weight decay is decoupled; the gradient's norm is clipped to `grad_clip_norm`, unless that is 0 or None.

    Returns:
        `grad_norm` before clipping, `learning_rate`, `step`.

    Raises:
        EngineError: `non_finite` when the gradient is not a number, and nothing has changed; or when the weights are
            not after the step, and the run has failed before they could be saved.
    """
    norm = float(torch.linalg.vector_norm(gradient, dtype=torch.float64))
    if not math.isfinite(norm):
        raise EngineError("non_finite", "optim_step: the accumulated gradient is not finite")
    limit = options["grad_clip_norm"]
    if limit and norm > limit:
        gradient.mul_(limit / norm)
    rate, beta1, beta2 = options["learning_rate"], options["beta1"], options["beta2"]
    moments.step += 1
    moments.mean.lerp_(gradient, 1 - beta1)
    moments.square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
    root = moments.square.sqrt().div_(math.sqrt(1 - beta2**moments.step)).add_(options["eps"])
    parameters.mul_(1 - rate * options["weight_decay"])
    parameters.addcdiv_(moments.mean, root, value=-rate / (1 - beta1**moments.step))
    if not bool(torch.isfinite(parameters).all()):
        raise EngineError("non_finite", "optim_step: the weights are not finite after the step; lower learning_rate")
    return {"grad_norm": norm, "learning_rate": rate, "step": float(moments.step)}
