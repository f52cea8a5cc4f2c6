"""Where a run's own reward is heading: `algorithms.forecast` on the rows of its metrics.jsonl.

Compute is counted in the tokens that the model has met. A trained one counts twice: with LoRA a training pass takes 4
operations per parameter where reading or drawing a token takes 2 (`algorithms.costs`). A cycle in which nothing was
trained has cost less than others, and cycles whose completions have grown longer more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from statistics import fmean
from typing import Any

from algorithms.forecast import FEWEST_POINTS, Estimate, Forecast, forecast
from tasks.curve import Onward, Row, finite
from tasks.reward_range import Range

METRIC = "reward_mean"
INTERVAL = 0.9
"""The share of the posterior that an `Estimate` holds."""

PASSES = {"tokens/prefill": 1, "tokens/sampled": 1, "tokens/trained": 2}
"""Forward passes that a token of each kind is worth."""

LEAST_NOISE = 0.01
"""Of a cycle's mean reward, as a share of its range. Cycles that are all worth nothing look as if there were none, and
would say for sure that nothing will ever come; the mean of a few hundred completions is never so sure."""

MOST_POINTS = 256
"""Beyond so many cycles neighbours are put together: a thousand points take a tenth of a second a block."""

DRAWN = 12
"""Steps of the line that is drawn onward."""


@dataclass(frozen=True, slots=True)
class RunForecast:
    """A forecast of one run.

    Args:
        cycles: trained so far.
        compute: so far.
        fit: the curves that the rewards allow.
    """

    cycles: int
    compute: float
    fit: Forecast

    @property
    def gain(self) -> Estimate:
        """What the mean reward gains if the run goes on until it has taken twice the compute."""
        return self.fit.gain(self.compute)

    def as_json(self) -> dict[str, Any]:
        """For summary.json: each number with its 90% interval."""
        estimates = {
            "now": self.fit.reward(self.compute),
            "at_twice_the_compute": self.fit.reward(2 * self.compute),
            "gain": self.gain,
            "ceiling": self.fit.parameter("ceiling"),
        }
        told = {name: asdict(estimate) for name, estimate in estimates.items()}
        return {"metric": METRIC, "cycles": self.cycles, "interval": INTERVAL, **told}

    def onward(self) -> Onward:
        """The line to draw behind the last cycle: as many cycles more, each of the mean compute so far."""
        points = []
        for step in range(DRAWN + 1):
            times = 1 + step / DRAWN
            reward = self.fit.reward(times * self.compute)
            points.append((times * self.cycles, reward.value, reward.low, reward.high))
        return Onward(METRIC, "forecast, 90% interval", points)


def run_forecast(rows: Sequence[Row], reward_range: Range | None) -> RunForecast | None:
    """The forecast after these cycles, always the same for the same rows.

    None where there are fewer than 8 with a reward, or its range is not known.
    """
    if reward_range is None or len(rows) < FEWEST_POINTS:
        return None
    points = _points(rows, *reward_range)
    if len(points) < FEWEST_POINTS:
        return None
    lowest, highest = reward_range
    noise = LEAST_NOISE * (highest - lowest)
    fit = forecast(*zip(*points, strict=True), lowest=lowest, highest=highest, noise=noise)
    return RunForecast(int(rows[-1]["cycle"]) + 1, _compute(rows)[-1], fit)


def forecast_told(forecast: Mapping[str, Any]) -> str:
    """One of summary.json in a line: "reward 0.710 now, 0.780 [0.74, 0.85] with twice the compute …"."""
    ahead, gain, ceiling = (_told(forecast[name]) for name in ("at_twice_the_compute", "gain", "ceiling"))
    return (
        f"reward {forecast['now']['value']:.3f} now, {ahead} with twice the compute (a gain of {gain}); "
        f"ceiling {ceiling}; in brackets {forecast['interval']:.0%} intervals"
    )


def _told(estimate: Mapping[str, float]) -> str:
    return f"{estimate['value']:.3f} [{estimate['low']:.3f}, {estimate['high']:.3f}]"


def _points(rows: Sequence[Row], lowest: float, highest: float) -> list[tuple[float, float]]:
    """Compute and reward; neighbours put together where there are many."""
    points = [
        (compute, min(highest, max(lowest, row[METRIC])))  # a sum of weights may be off in its last digit
        for compute, row in zip(_compute(rows), rows, strict=True)
        if compute > 0 and finite(row.get(METRIC))
    ]
    together = -(-len(points) // MOST_POINTS)
    if together <= 1:
        return points
    heaps = (points[first : first + together] for first in range(0, len(points), together))
    return [(fmean(compute for compute, _ in heap), fmean(reward for _, reward in heap)) for heap in heaps]


def _compute(rows: Sequence[Row]) -> list[float]:
    """What had been spent by the end of each cycle."""
    return list(accumulate(sum(passes * row.get(key, 0) for key, passes in PASSES.items()) for row in rows))
