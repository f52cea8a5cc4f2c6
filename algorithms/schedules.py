"""Learning-rate schedules as a pure function of the step: nothing to save, nothing to restore."""

from __future__ import annotations

import math
from typing import Literal, get_args

Schedule = Literal["constant", "linear", "cosine"]


def learning_rate(
    step: int,
    total_steps: int,
    base: float,
    schedule: Schedule = "constant",
    *,
    warmup_steps: int = 0,
    final_fraction: float = 0.0,
) -> float:
    """The rate of optimizer step `step` (zero-based).

    Warm-up climbs linearly and reaches `base` with step `warmup_steps`, its first step already being above 0. After it
    "constant" stays, "linear" and "cosine" (arXiv 1608.03983, one half period) fall to `final_fraction · base` at the
    last step.

    Raises:
        ValueError: an unknown schedule, a step outside 0 … total_steps − 1, or a number out of its range.
    """
    if schedule not in get_args(Schedule):
        raise ValueError(f"schedule {schedule!r} is unknown: use one of {', '.join(get_args(Schedule))}")
    if not 0 <= step < total_steps:
        raise ValueError(f"step is {step}: with total_steps={total_steps} it must be in 0 … {total_steps - 1}")
    if not 0 <= warmup_steps <= total_steps:
        raise ValueError(f"warmup_steps is {warmup_steps}: it must be in 0 … total_steps={total_steps}")
    if not (base >= 0 and math.isfinite(base)):
        raise ValueError(f"the base learning rate is {base}: it must be ≥ 0 and finite")
    if not 0 <= final_fraction <= 1:
        raise ValueError(f"final_fraction is {final_fraction}: it must be in [0, 1]")
    if step < warmup_steps:
        return base * (step + 1) / (warmup_steps + 1)
    if schedule == "constant":
        return base
    progress = (step - warmup_steps) / max(1, total_steps - 1 - warmup_steps)
    left = 1.0 - progress if schedule == "linear" else 0.5 * (1.0 + math.cos(math.pi * progress))
    return base * (final_fraction + (1.0 - final_fraction) * left)
