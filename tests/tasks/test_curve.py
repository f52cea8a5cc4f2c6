from __future__ import annotations

import base64
import itertools
import math
import re
import xml.etree.ElementTree as ET

import pytest

from tasks.curve import line_chart_svg, nice_ticks
from tasks.run_page import run_report_markdown

ROWS = [{"cycle": i, "reward_mean": 0.1 + 0.05 * i, "reward_max": 1.0, "grad_norm": 1.5} for i in range(16)]
SVG = "{http://www.w3.org/2000/svg}"


def drawn(svg: str, tag: str) -> list[ET.Element]:
    return ET.fromstring(svg).findall(f".//{SVG}{tag}")


def points(svg: str) -> list[tuple[float, float]]:
    return [(float(c.attrib["cx"]), float(c.attrib["cy"])) for c in drawn(svg, "circle")]


def pictures(page: str) -> list[str]:
    """Titles of the images of a page, read from the images themselves."""
    uris = re.findall(r"!\[[^]]*]\(data:image/svg\+xml;base64,([^)]+)\)", page)
    return [ET.fromstring(base64.b64decode(uri)).attrib["aria-label"] for uri in uris]


def test_a_curve_has_a_point_for_every_cycle_and_rises_with_the_reward() -> None:
    found = points(line_chart_svg(ROWS, keys=["reward_mean"], title="Reward"))
    assert len(found) == 16
    assert all(left[0] < right[0] and left[1] > right[1] for left, right in itertools.pairwise(found))


def test_points_stand_where_the_axes_say() -> None:
    svg = line_chart_svg([{"cycle": 0, "r": 0.0}, {"cycle": 4, "r": 1.0}], keys=["r"], title="t")
    texts = drawn(svg, "text")
    across = {t.text: float(t.attrib["x"]) for t in texts if t.attrib["text-anchor"] == "middle"}
    up = {t.text: float(t.attrib["y"]) - 4 for t in texts if t.attrib["text-anchor"] == "end"}  # 4: half a letter
    assert points(svg) == [(across["1"], up["0"]), (across["5"], up["1"])]


def test_the_legend_names_the_keys_that_were_drawn_and_no_others() -> None:
    svg = line_chart_svg(ROWS, keys=["reward_mean", "reward_max", "loss_per_token"], title="Reward")
    texts = {text.text for text in drawn(svg, "text")}
    assert {"Reward", "cycle", "reward_mean", "reward_max"} <= texts
    assert "loss_per_token" not in texts


@pytest.mark.parametrize("hole", [None, math.nan, math.inf])
def test_a_missing_number_leaves_a_gap_instead_of_a_false_line(hole: float | None) -> None:
    rows = [{"cycle": i, "r": hole if i == 2 else 1.0} for i in range(5)]
    svg = line_chart_svg(rows, keys=["r"], title="t")
    (line,) = [path.attrib["d"] for path in drawn(svg, "path") if path.attrib.get("fill") == "none"]
    assert line.count("M") == 2
    assert len(points(svg)) == 4


def test_one_cycle_or_a_flat_line_is_drawn_too() -> None:
    assert len(points(line_chart_svg([{"cycle": 0, "r": 0.0}], keys=["r"], title="t"))) == 1
    assert len(points(line_chart_svg([{"cycle": i, "r": 3.0} for i in range(3)], keys=["r"], title="t"))) == 3


def test_nothing_to_draw_is_no_chart() -> None:
    assert line_chart_svg([], keys=["r"], title="t") == ""
    assert line_chart_svg([{"cycle": 0, "r": math.nan}], keys=["r"], title="t") == ""


def test_a_hostile_name_cannot_break_out_of_the_picture() -> None:
    key = '<script>alert("x")</script>'
    svg = line_chart_svg([{"cycle": 0, key: 1.0}], keys=[key], title='"><script>')
    assert "<script" not in svg
    assert key in {text.text for text in drawn(svg, "text")}


def test_a_picture_brings_its_own_background_and_asks_the_page_for_nothing() -> None:
    svg = line_chart_svg(ROWS, keys=["reward_mean"], title="t")
    assert drawn(svg, "rect")[0].attrib["width"] == ET.fromstring(svg).attrib["width"]
    assert "currentColor" not in svg


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (-0.3, 4.42, [-1, 0, 1, 2, 3, 4, 5]),
        (0, 0.00047, [0, 0.0001, 0.0002, 0.0003, 0.0004, 0.0005]),
        (0, 0, [0, 0.2]),
    ],
)
def test_ticks_are_round_numbers_around_the_data(low: float, high: float, ticks: list[float]) -> None:
    assert nice_ticks(low, high, 5) == ticks


def test_the_report_shows_before_and_after_the_curve_and_what_numbers_mean() -> None:
    summary = {
        "evaluation_before": {"accuracy": 0.125, "greedy_accuracy": None, "finished_fraction": 0.1},
        "evaluation_after": {"accuracy": 0.96875, "greedy_accuracy": None, "finished_fraction": 1.0},
        "run_folder": "runs/demo",
        "open_sessions": 0,
    }
    page = run_report_markdown(summary, ROWS, name="demo", algorithm="grpo")
    assert "| accuracy, sampled | 0.125 | 0.9688 |" in page
    assert "greedy" not in page
    assert "- open sessions: `0`" in page
    assert pictures(page) == ["Reward by cycle"]
    assert "| `grad_norm` | 1.5 | Norm of the gradient before clipping. |" in page


def test_a_report_in_the_middle_of_a_run_has_curves_and_no_ending() -> None:
    page = run_report_markdown(None, ROWS[:1], name="demo", algorithm="grpo")
    assert pictures(page) == ["Reward by cycle"]
    assert "held out" not in page
    assert "None" not in page


@pytest.mark.parametrize(
    ("row", "titles"),
    [
        ({"teacher_kl": 2.0, "kl_sampler_trainer": 0.0}, ["Reverse KL to the teacher, nats per token"]),
        ({"margin": 0.1, "accuracy": 0.5}, ["Margin of the pairs", "Share of pairs whose margin is positive"]),
        ({"reward_mean": 0.1, "best_reward": 0.5}, ["Reward by cycle"]),
        ({"critic_explained_variance": -0.2}, ["Variance of returns that the critic explains"]),
    ],
)
def test_a_page_shows_the_curves_that_its_algorithm_has_and_no_empty_ones(
    row: dict[str, float], titles: list[str]
) -> None:
    page = run_report_markdown(None, [{"cycle": 0, **row}], name="a", algorithm="any")
    assert pictures(page) == titles
