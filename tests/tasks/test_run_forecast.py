"""The forecast of a run, from the rows of its metrics."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from algorithms.scaling import SigmoidCurve
from tasks.glossary import forecast_markdown
from tasks.reward_range import RANGES, reward_range
from tasks.rewards import BUILT_IN, RewardTerm
from tasks.run_forecast import forecast_told, run_forecast

CURVE = SigmoidCurve(start=0.1, ceiling=0.8, steepness=2, midpoint=12)
SHARE = (0.0, 1.0)


def rows_of(cycles: int, curve: SigmoidCurve = CURVE, *, tokens: int = 1000) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    rewards = [rng.binomial(256, curve.reward(cycle)) / 256 for cycle in range(1, cycles + 1)]
    spent = {"tokens/prefill": tokens, "tokens/sampled": tokens, "tokens/trained": 2 * tokens}
    return [{"cycle": cycle, "reward_mean": reward, **spent} for cycle, reward in enumerate(rewards)]


def test_a_run_s_forecast_holds_what_comes_and_is_the_same_every_time() -> None:
    found = run_forecast(rows_of(24), SHARE)
    assert found is not None
    told = found.as_json()
    assert told["at_twice_the_compute"]["low"] <= CURVE.reward(48) <= told["at_twice_the_compute"]["high"]
    assert told["gain"]["low"] <= CURVE.gain(24) <= told["gain"]["high"]
    assert told["ceiling"]["low"] <= 0.8 <= told["ceiling"]["high"]
    assert (told["metric"], told["cycles"], told["interval"]) == ("reward_mean", 24, 0.9)
    again = run_forecast(rows_of(24), SHARE)
    assert again is not None
    assert again.as_json() == told
    assert [name for name in told if f"`{name}`" not in forecast_markdown()] == []
    assert forecast_told(told).startswith(f"reward {told['now']['value']:.3f} now, ")


def test_compute_is_what_the_tokens_cost_and_not_the_number_of_cycles() -> None:
    rows = rows_of(24)
    idle = {"cycle": 24, "tokens/prefill": 0, "tokens/sampled": 0}
    cheap, dear = run_forecast([*rows, idle], SHARE), run_forecast(rows_of(24, tokens=5000), SHARE)
    assert cheap is not None
    assert dear is not None
    assert (cheap.compute, dear.compute) == (24 * 6000, 24 * 30_000)
    assert cheap.gain == run_forecast(rows, SHARE).gain  # type: ignore[union-attr]
    assert dear.gain.value == pytest.approx(cheap.gain.value, abs=1e-6)


def test_the_line_onward_begins_at_the_last_cycle_and_ends_at_twice_as_many() -> None:
    found = run_forecast(rows_of(24), SHARE)
    assert found is not None
    points = found.onward().points
    assert (points[0][0], points[-1][0]) == (24, 48)
    assert points[-1][1] == found.as_json()["at_twice_the_compute"]["value"]
    assert all(low <= value <= high for _, value, low, high in points)


def test_thousands_of_cycles_are_put_together_to_points_of_the_same_curve() -> None:
    long = SigmoidCurve(start=0.1, ceiling=0.8, steepness=2, midpoint=1500)
    found = run_forecast(rows_of(3000, long), SHARE)
    assert found is not None
    assert len(found.fit.compute) == 250
    assert found.as_json()["ceiling"]["value"] == pytest.approx(0.8, abs=0.02)


def test_cycles_that_are_all_worth_nothing_do_not_say_for_sure_that_nothing_will_come() -> None:
    worthless = [{**row, "reward_mean": 0.0} for row in rows_of(8)]
    found = run_forecast(worthless, SHARE)
    assert found is not None
    assert found.gain.high > 0.03
    assert found.fit.parameter("ceiling").high > 0.8


@pytest.mark.parametrize(
    ("rows", "bounds"),
    [
        (rows_of(7), SHARE),
        (rows_of(24), None),
        ([{"cycle": cycle, "teacher_kl": 1.0, "tokens/sampled": 9} for cycle in range(24)], SHARE),
        ([{"cycle": cycle, "reward_mean": 0.5} for cycle in range(24)], SHARE),
        ([{**row, "reward_mean": None} for row in rows_of(24)], SHARE),
        ([], SHARE),
    ],
    ids=["seven", "range not known", "no reward", "no tokens", "nothing scored", "nothing"],
)
def test_where_nothing_can_be_foretold_there_is_no_forecast(rows: list[dict[str, Any]], bounds: Any) -> None:
    assert run_forecast(rows, bounds) is None


def test_a_reward_s_range_is_its_terms_weighted() -> None:
    assert set(RANGES) == set(BUILT_IN)
    assert reward_range([RewardTerm("number")]) == (0, 1)
    assert reward_range([RewardTerm("number", weight=2), RewardTerm("soft_overlong", weight=0.5)]) == (-0.5, 2)
    assert reward_range([RewardTerm("exact", weight=-1)]) == (-1, 0)
    assert reward_range([RewardTerm("number"), RewardTerm("mine:reward")]) is None
    assert reward_range([RewardTerm("number", weight=0)]) is None
    assert reward_range([]) is None
