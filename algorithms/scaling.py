"""How reward grows with compute: ScaleRL's sigmoid, forward and inverse (arXiv 2510.13786).

    R(C) = R0 + (A − R0) / (1 + (Cmid / C)^B)

R0 is the reward before training, A the ceiling, B how steep the middle is, Cmid the compute at which half of the way is
done. C may be in any unit of compute, the same as Cmid's. `forecast` fits the four to a run's own curve.
"""

from __future__ import annotations

from dataclasses import dataclass

H100_HOURS_PER_GB200_HOUR = 2.8
"""What tinker-nomics takes a GB200 hour for, in H100 hours."""


@dataclass(frozen=True, slots=True)
class SigmoidCurve:
    """The four parameters of one curve.

    Args:
        start: R0, the reward at no compute.
        ceiling: A, the reward that unlimited compute comes near.
        steepness: B, above 0.
        midpoint: Cmid, above 0.

    Raises:
        ValueError: a steepness or a midpoint that is not above 0.
    """

    start: float
    ceiling: float
    steepness: float
    midpoint: float

    def __post_init__(self) -> None:
        for name in ("steepness", "midpoint"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, and is {getattr(self, name)}")

    def reward(self, compute: float) -> float:
        """R(C). At no compute it is R0."""
        if compute <= 0:
            return self.start
        to_go = float((self.midpoint / compute) ** self.steepness)
        return self.start + (self.ceiling - self.start) / (1 + to_go)

    def compute_for(self, reward: float) -> float:
        """C at which the curve has come to `reward`; the inverse of `reward`.

        Raises:
            ValueError: a reward that the curve begins with or never reaches.
        """
        low, high = sorted((self.start, self.ceiling))
        if not low < reward < high:
            raise ValueError(
                f"this curve runs from {self.start:g} to {self.ceiling:g} and does not cross {reward:g}: "
                f"no compute reaches it"
            )
        gone = (reward - self.start) / (self.ceiling - self.start)
        # gone / (1 − gone) = (C / Cmid)^B
        return self.midpoint * float((gone / (1 - gone)) ** (1 / self.steepness))

    def gain(self, compute: float, times: float = 2.0) -> float:
        """What the reward gains if `compute` becomes `times` as much."""
        return self.reward(times * compute) - self.reward(compute)
