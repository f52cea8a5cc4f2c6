"""What a loss is tuned with, in the form a provider takes it: `loss_config`, or bounds of the ratio on the datum.

Bounds are bounds of the ratio exp(lp − q), never the papers' epsilons: PPO's ε = 0.2 is the range 0.8 … 1.2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from algorithms.losses import require_provider


@dataclass(frozen=True, slots=True)
class LossTerms:
    """The tuning of a loss, ready to be sent.

    `clip_low` and `clip_high` become per-token tensors on every datum (`rl_datum` has arguments of these names; None
    sends none); `loss_config` holds the scalars of the payload. A bound travels in one of the two forms only.
    """

    clip_low: float | None = None
    clip_high: float | None = None
    loss_config: dict[str, float] = field(default_factory=dict)


NO_TERMS = LossTerms()
"""Nothing is sent: the loss has nothing to tune, or the provider's own defaults count."""


def clip_range(provider: str, low: float | None, high: float | None) -> LossTerms:
    """The bounds `low` and `high` of the ratio, as `provider` takes them; None leaves a bound to the provider.

    tinker reads tensors on the datum, modal and local scalars in `loss_config`.

    Raises:
        ValueError: an unknown provider, a bound that is negative or not finite, or a range without the ratio 1.
    """
    require_provider(provider)
    bounds = {"clip_low": low, "clip_high": high}
    for name, bound in bounds.items():
        if bound is not None and not 0 <= bound < math.inf:
            raise ValueError(f"{name} is {bound}: it is a bound of the ratio itself, so give a finite number ≥ 0")
    _require_room_for_one(low, high)
    if provider == "tinker":
        return LossTerms(low, high)
    return LossTerms(loss_config={f"{name}_threshold": bound for name, bound in bounds.items() if bound is not None})


def _require_room_for_one(low: float | None, high: float | None) -> None:
    """A ratio is 1 before the first update: a range without 1 is an epsilon that was taken for a bound."""
    if low is not None and low > 1:
        raise ValueError(f"clip_low is {low}: the ratio of an unchanged policy, 1, is below it; give a bound ≤ 1")
    if high is not None and high < 1:
        raise ValueError(
            f"clip_high is {high}: the ratio of an unchanged policy, 1, is above it. It is a bound of the ratio, "
            f"not an epsilon: did you mean {1 + high:g}?"
        )
