"""Several algorithms' cost, memory and scaling side by side, from tinker-nomics's catalogue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from algorithms.catalogue import Scaling, profile_of, references
from algorithms.contract import Algorithm
from algorithms.scaling import H100_HOURS_PER_GB200_HOUR, SigmoidCurve
from cli.catalogue_facts import SETTING, scaling_of
from cli.failures import UsageError
from tasks.curves import log_chart_svg

START, COMPUTE = 0.2, (1000.0, 3000.0, 10_000.0)
"""Where a curve begins, which was not published, and at which GB200 hours it is read, unless said otherwise."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What is compared, and how the curves are read.

    Args:
        rows: the algorithms.
        start: R0, the reward that every curve begins at.
        compute: GB200 hours at which they are read.
        target: a reward whose compute is asked for; None asks for none.

    Raises:
        UsageError: a number out of its range, or a start that a curve does not rise from.
    """

    rows: Sequence[Algorithm]
    start: float = START
    compute: Sequence[float] = COMPUTE
    target: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.start < 1:
            raise UsageError(f"--start {self.start:g}: the share of problems solved before training, from 0 to below 1")
        if wrong := [f"{hours:g}" for hours in self.compute if not 0 < hours < float("inf")]:
            raise UsageError(f"--compute {' '.join(wrong)}: GB200 hours, above 0")
        if self.target is not None and not 0 < self.target < 1:
            raise UsageError(f"--target {self.target:g}: the share of problems solved that is wanted, between 0 and 1")
        for name, scaling in self.scalings.items():
            if self.start >= scaling.ceiling:
                raise UsageError(f"--start {self.start:g}: {name}'s curve ends at {scaling.ceiling:g}, start below")

    @property
    def scalings(self) -> dict[str, Scaling]:
        """The published parameters by algorithm, of those that have some."""
        return {row.name: scaling for row in self.rows if (scaling := scaling_of(row)) is not None}

    @property
    def curves(self) -> dict[str, SigmoidCurve]:
        """Their curves."""
        return {name: scaling.curve(self.start) for name, scaling in self.scalings.items()}

    def as_json(self) -> dict[str, Any]:
        """All of it as plain data; compute in GB200 hours, None where no compute is enough."""
        return {
            "start": self.start,
            "target": self.target,
            "curves_of": SETTING,
            "h100_hours_per_gb200_hour": H100_HOURS_PER_GB200_HOUR,
            "algorithms": [self._described(row) for row in self.rows],
        }

    def _described(self, row: Algorithm) -> dict[str, Any]:
        profile, curve = profile_of(row), self.curves.get(row.name)
        of_profile = ("models", "critic", "reward_model", "memory", "typical_k", "typical_g", "asynchronous", "notes")
        return {
            "name": row.name,
            "title": row.title,
            "paper": row.paper,
            "profile": profile.name if profile else None,
            "profile_is_its_own": row.profile is not None,
            **{name: getattr(profile, name) if profile else None for name in of_profile},
            "references": [str(references()[key]) for key in profile.references] if profile and row.profile else [],
            "scaling": self._read(self.scalings[row.name], curve) if curve else None,
        }

    def _read(self, scaling: Scaling, curve: SigmoidCurve) -> dict[str, Any]:
        return {
            "ceiling": scaling.ceiling,
            "steepness": scaling.steepness,
            "midpoint": _in_both(scaling.midpoint),
            "rewards": [{**_in_both(hours), "reward": curve.reward(hours)} for hours in self.compute],
            "compute_for_target": None if self.target is None else _in_both(compute_for(curve, self.target)),
        }

    def svg(self) -> str:
        """The curves, from their foot to near their ceilings, with a dot at each Cmid.

        Raises:
            UsageError: none of the algorithms has a curve.
        """
        if not self.curves:
            names = ", ".join(row.name for row in self.rows)
            raise UsageError(f"--svg: no curve is published of {names}; of grpo, dapo, drgrpo and cispo there is one")
        midpoints = {name: scaling.midpoint for name, scaling in self.scalings.items()}
        return log_chart_svg(
            {name: curve.reward for name, curve in self.curves.items()},
            low=min(100.0, *self.compute),
            high=max(100_000.0, *self.compute),
            title=f"ScaleRL, {SETTING}: share solved, from {self.start:g}; dots at Cmid",
            across="GB200 hours",
            marked=midpoints,
            level=None if self.target is None else (self.target, f"--target {self.target:g}"),
        )


def compute_for(curve: SigmoidCurve, reward: float) -> float | None:
    """GB200 hours to a reward: 0 where the curve begins at it or above; None where it never comes there."""
    if reward <= curve.start:
        return 0.0
    return curve.compute_for(reward) if reward < curve.ceiling else None


def _in_both(gb200: float | None) -> dict[str, float | None]:
    h100 = None if gb200 is None else gb200 * H100_HOURS_PER_GB200_HOUR
    return {"gb200_hours": gb200, "h100_hours": h100}
