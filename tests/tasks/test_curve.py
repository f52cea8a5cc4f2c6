from __future__ import annotations

import base64
import itertools
import math
import re
import xml.etree.ElementTree as ET

import pytest

from tasks.chart_frame import nice_ticks
from tasks.curve import Onward, line_chart_svg
from tasks.run_forecast import run_forecast
from tasks.run_page import run_report_markdown

ROWS = [{"cycle": i, "reward_mean": 0.1 + 0.05 * i, "reward_max": 1.0, "grad_norm": 1.5} for i in range(16)]
SVG = "{http://www.w3.org/2000/svg}"


def drawn(svg: str, tag: str) -> list[ET.Element]:
    return ET.fromstring(svg).findall(f".//{SVG}{tag}")


def points(svg: str) -> list[tuple[float, float]]:
    return [(float(c.attrib["cx"]), float(c.attrib["cy"])) for c in drawn(svg, "circle")]


def charts(page: str) -> dict[str, str]:
    """The images of a page by the title that each has in itself."""
    uris = re.findall(r"!\[[^]]*]\(data:image/svg\+xml;base64,([^)]+)\)", page)
    svgs = [base64.b64decode(uri).decode() for uri in uris]
    return {ET.fromstring(svg).attrib["aria-label"]: svg for svg in svgs}


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
    assert "| accuracy, sampled | 12.5% | 96.9% |" in page
    assert "greedy" not in page
    assert "- open sessions: `0`" in page
    assert list(charts(page)) == ["Reward by cycle"]
    assert "| `grad_norm` | 1.5 | Norm of the gradient before clipping. |" in page


MEASURED = [
    {
        "cycle": cycle,
        "accuracy": share,
        "pass_at": {"pass@4": 0.9},
        "intervals": {"accuracy": (share - 0.1, share + 0.2)},
    }
    for cycle, share in ((0, 0.1), (8, 0.5), (12, 0.8))
]


def test_held_out_accuracy_is_drawn_over_the_cycles_trained_with_a_whisker_from_end_to_end_of_each_interval() -> None:
    page = run_report_markdown(None, ROWS[:12], MEASURED, name="demo", algorithm="grpo")
    svg = charts(page)["Held-out accuracy, with 95% intervals"]
    texts = drawn(svg, "text")
    across = {t.text: float(t.attrib["x"]) for t in texts if t.attrib["text-anchor"] == "middle"}
    up = {t.text: float(t.attrib["y"]) - 4 for t in texts if t.attrib["text-anchor"] == "end"}
    assert {"cycles trained", "0", "12"} <= across.keys()
    assert {"accuracy", "pass@4"} <= {text.text for text in texts}
    accuracy, others = points(svg)[:3], points(svg)[3:]
    assert [x for x, _ in accuracy] == pytest.approx(
        [across["0"] - 3, across["0"] + (across["12"] - across["0"]) * 2 / 3 - 3, across["12"] - 3], abs=0.2
    )
    assert [x for x, _ in others] == pytest.approx([x + 6 for x, _ in accuracy], abs=0.2), "beside, not behind"
    whiskers = [path.attrib["d"] for path in drawn(svg, "path") if path.attrib.get("class") == "whisker"]
    ends = [tuple(map(float, re.findall(r"[\d.]+", one)[1:3])) for one in whiskers]
    scale = up["0"] - up["1"]
    wanted = [(up["0"] - (share - 0.1) * scale, up["0"] - (share + 0.2) * scale) for share in (0.1, 0.5, 0.8)]
    assert ends == [pytest.approx(one, abs=0.2) for one in wanted]
    lines = [path.attrib["d"] for path in drawn(svg, "path") if path.attrib.get("fill") == "none"]
    assert [line.count("M") for line in lines] == [1, 1], "joined across the cycles between"


def test_one_measurement_is_no_curve_and_the_loss_has_one_of_its_own() -> None:
    assert charts(run_report_markdown(None, [], MEASURED[:1], name="demo", algorithm="sft")) == {}
    losses = [{"cycle": 0, "loss": 3.0, "accuracy": None}, {"cycle": 4, "loss": 2.0, "accuracy": None}]
    assert list(charts(run_report_markdown(None, [], losses, name="a", algorithm="sft"))) == [
        "Held-out loss, nats per token"
    ]


def test_before_and_after_are_told_with_their_intervals_and_the_gain_with_its_own() -> None:
    before, after = MEASURED[0], MEASURED[2]
    summary = {
        "evaluation_before": before,
        "evaluation_after": after,
        "accuracy_gain": {"gain": 0.7, "interval": (0.55, 0.82)},
    }
    page = run_report_markdown(summary, ROWS, MEASURED, name="demo", algorithm="grpo")
    assert "| held out, 95% interval | before | after |" in page
    assert "| accuracy, sampled | 10.0% [0, 30] | 80.0% [70, 100] |" in page
    assert "| pass@4, sampled | 90.0% | 90.0% |" in page
    assert "compared prompt by prompt: **+70.0 points** [95%: 55, 82]" in page


def test_a_report_in_the_middle_of_a_run_has_curves_and_no_ending() -> None:
    page = run_report_markdown(None, ROWS[:1], name="demo", algorithm="grpo")
    assert list(charts(page)) == ["Reward by cycle"]
    assert "held out" not in page
    assert "None" not in page


def test_a_forecast_is_drawn_dotted_beyond_the_last_point_on_the_band_of_its_interval() -> None:
    onward = Onward("reward_mean", "forecast", [(16.0, 0.8, 0.7, 0.9), (32.0, 1.0, 0.75, 1.2)])
    svg = line_chart_svg(ROWS, keys=["reward_mean", "reward_max"], title="t", onward=onward)
    across = {t.text: float(t.attrib["x"]) for t in drawn(svg, "text") if t.attrib["text-anchor"] == "middle"}
    (line,) = [path.attrib for path in drawn(svg, "path") if path.attrib.get("class") == "onward"]
    (band,) = [path.attrib["d"] for path in drawn(svg, "path") if path.attrib.get("class") == "band"]
    ends = [float(x) for x in re.findall(r"([\d.]+) [\d.]+", line["d"])]
    assert ends[0] == points(svg)[15][0], "where the last cycle stands"
    assert ends[1] == pytest.approx(across["30"] + (across["30"] - across["20"]) / 5, abs=0.2)
    assert line["stroke-dasharray"]
    assert band.count(" ") == 4
    assert "forecast" in {text.text for text in drawn(svg, "text")}
    assert "onward" not in line_chart_svg(ROWS, keys=["reward_max"], title="t", onward=onward)


def test_the_page_tells_a_forecast_and_draws_it_in_the_chart_of_the_reward_alone() -> None:
    rows = [{**row, "stop_fraction": 0.5, "tokens/sampled": 100} for row in ROWS]
    page = run_report_markdown(
        None, rows, name="demo", algorithm="grpo", forecast=run_forecast(rows, reward_range=(0.0, 1.0))
    )
    assert "Forecast: reward 0.793 now, 0.946 [" in page
    assert ["onward" in svg for svg in charts(page).values()] == [True, False]


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
    assert list(charts(page)) == titles
