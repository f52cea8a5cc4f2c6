"""`whitney algorithms` and the pages that it shows."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from itertools import pairwise
from pathlib import Path

import pytest

from algorithms import ALGORITHMS, PROVIDER_LOSS_SUPPORT
from algorithms.catalogue import profiles, references
from cli.algorithm_numbers import NUMBERS, numbers
from cli.algorithm_pages import docstring_parts, files, page
from cli.algorithms import PAGES
from cli.app import run_command
from cli.cost_pages import costs_markdown
from flows.config import CONFIGS


def asked(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What the command prints."""
    assert run_command(["algorithms", *arguments]) == 0
    return capsys.readouterr().out


def test_the_table_says_what_every_algorithm_sends_and_what_refuses_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "150")
    shown = asked(capsys)
    assert [name for name in ALGORITHMS if f"│ {name} " not in shown] == []
    words = set(re.split(r"[\s│]+", shown))
    assert {loss for row in ALGORITHMS.values() for loss in row.losses} <= words
    assert "tinker: has no gspo" in shown
    assert "modal: has no sapo" in shown
    assert "a teacher whose" in shown


@pytest.mark.parametrize("columns", ["", "80", "100"])
def test_the_table_is_no_wider_than_the_terminal_and_in_a_narrow_one_has_what_one_chooses_by(
    columns: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    shown = asked(capsys)
    assert max(map(len, shown.splitlines())) <= int(columns or 80)
    assert re.findall(r"[a-z]+", next(line for line in shown.splitlines() if "algorithm" in line)) == [
        "algorithm",
        "contract",
        "refuses",
    ]
    assert [name for name in ALGORITHMS if f"│ {name} " not in shown] == []
    assert "has no gspo" in shown


def test_json_is_a_list_with_everything_an_agent_asks_for(capsys: pytest.CaptureFixture[str]) -> None:
    rows = {row["name"]: row for row in json.loads(asked(capsys, "--json"))}
    assert list(rows) == list(ALGORITHMS)
    for name, row in rows.items():
        assert row["operations"] == list(ALGORITHMS[name].operations)
        assert row["losses"] == list(ALGORITHMS[name].losses)
        assert row["refuses"] == list(ALGORITHMS[name].refuses)
        assert set(row["losses_by_provider"]) == set(PROVIDER_LOSS_SUPPORT)
        assert row["title"]
        assert row["contract"]
        assert row["operations_per_cycle"]
        assert row["paper"]
    assert rows["dppo"]["options"]["delta_low"] == 0.2
    assert rows["dapo"]["options"]["resample"]["max_rounds"] == 3
    assert rows["opd"]["extra_runs"] == ["teacher"]


def test_a_name_shows_its_page_and_as_json_the_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert asked(capsys, "rloo") == page("rloo")
    assert json.loads(asked(capsys, "rloo", "--json"))["name"] == "rloo"


def test_an_unknown_name_is_told_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["algorithms", "gpro"]) == 2
    assert "unknown algorithm 'gpro': did you mean 'grpo'?" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["--json"], ["dpo"], ["dpo", "--json"], ["--compare", "grpo"]], ids=" ".join)
def test_it_loads_neither_prefect_nor_torch_nor_pydantic(arguments: list[str]) -> None:
    code = f"import sys; from cli.app import run_command; status = run_command(['algorithms', *{arguments}]); "
    code += "sys.exit(status or ', '.join({'prefect', 'torch', 'pydantic'} & set(sys.modules)) or 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_algorithms_are_compared_by_memory_settings_and_published_curves(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    shown = asked(capsys, "--compare", "grpo", "cispo", "gspo", "--compute", "3000", "6000", "--target", "0.51")
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown.splitlines() if "│" in line]
    cells = {label: told for label, *told in rows if label}
    assert cells["catalogue row"] == ["GRPO", "CISPO", "GRPO, its family"]
    assert cells["typical G"] == ["2, 8, 16, 32, 64", "8, 16", "2, 8, 16, 32, 64"]
    assert cells["solved at 3,000 GB200 h"] == ["0.312", "0.390", "–"]
    assert cells["solved at 6,000 GB200 h"][1] == "0.512"
    assert cells["compute to solve 0.51"][0] == "never: it ends at 0.5"
    assert cells["curve"][2] == "none published"


def test_a_comparison_as_json_and_in_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = asked(capsys, "cispo", "--compare", "ppo_critic", "dpo", "opd", "sft")
    assert max(map(len, shown.splitlines())) <= 80
    assert "none: tinker-nomics" in shown
    found = json.loads(asked(capsys, "--compare", "cispo", "sft", "--target", "0.39", "--start", "0.2", "--json"))
    cispo, sft = found["algorithms"]
    assert cispo["scaling"]["compute_for_target"] == pytest.approx({"gb200_hours": 3000, "h100_hours": 8400})
    assert [one["gb200_hours"] for one in cispo["scaling"]["rewards"]] == [1000, 3000, 10_000]
    assert cispo["references"][0].endswith("arXiv 2506.13585")
    assert (sft["profile"], sft["scaling"]) == (None, None)


def test_the_curves_are_drawn_with_a_dot_at_each_midpoint(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    picture = tmp_path / "curves.svg"
    asked(capsys, "--compare", "grpo", "cispo", "gspo", "--svg", str(picture), "--target", "0.65")
    drawn = ET.fromstring(picture.read_text())
    kinds = [element.attrib.get("class") or element.tag.rpartition("}")[2] for element in drawn.iter()]
    assert (kinds.count("curve"), kinds.count("circle"), kinds.count("level")) == (2, 2, 1)
    words = [element for element in drawn.iter() if element.text]
    assert {"grpo", "cispo", "GB200 hours", "--target 0.65"} <= {element.text for element in words}
    hours = [(float(one.attrib["x"]), one.text or "") for one in words if one.attrib.get("y") == "222"]
    assert [text for _, text in hours] == ["100", "300", "1,000", "3,000", "10,000", "30,000", "100,000"]
    room = [after - before for (before, _), (after, _) in pairwise(hours)]
    assert min(room) > 7 * len("100,000") * 1.5, "the last one ends at its place, the others have it in their middle"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--compare"], "--compare: name the algorithms"),
        (["--compare", "gpro"], "did you mean 'grpo'?"),
        (["--compare", "grpo", "--start", "0.5"], "--start 0.5: grpo's curve ends at 0.5"),
        (["--compare", "grpo", "--start", "nan"], "--start nan"),
        (["--compare", "grpo", "--compute", "0"], "--compute 0: GB200 hours, above 0"),
        (["--compare", "grpo", "--target", "2"], "--target 2"),
        (["--compare", "sft", "--svg", "x.svg"], "no curve is published of sft"),
        (["--compare", "grpo", "--svg", "x.png"], "its name ends in .svg"),
        (["--compare", "grpo", "--svg", "/nowhere/x.svg"], "--svg /nowhere/x.svg cannot be written"),
        (["--start", "0.3"], "--start: no effect without --compare"),
    ],
)
def test_a_comparison_that_makes_no_sense_is_refused(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["algorithms", *arguments]) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.out == ""


def test_docs_algorithms_is_made_from_the_code() -> None:
    made = files()
    stale = [path.name for path, text in made.items() if not path.is_file() or path.read_text() != text]
    assert stale == [], "regenerate them: make docs"
    assert {path.name for path in PAGES.iterdir()} == {path.name for path in made}


def test_the_page_of_costs_is_made_from_the_catalogue_and_the_formulas() -> None:
    made = costs_markdown()
    assert (PAGES.parent / "costs.md").read_text() == made, "regenerate it: make docs"
    assert [name for name in profiles() if f"**{name}**" not in made] == []
    assert [one for one in references().values() if f": {one}\n" not in made] == []
    assert [name for name in ALGORITHMS if f"algorithms/{name}.md" not in made] == ["sft", "custom"]
    assert "| CISPO | 0.58 | 2.2 | 3,000 | 8,400 | 0.231 | 0.390 | 0.555 | 0.390 |" in made
    assert "4P + 6P·R/D" in made


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("cispo", "A 0.58, B 2.2, Cmid 3,000 GB200 h = 8,400 H100 h"),
        ("gspo", "By tinker-nomics, for GRPO, its family."),
        ("ppo_critic", "| models in memory | policy, reference, critic, reward_model |"),
        ("sft", "tinker-nomics has no row for it"),
    ],
)
def test_a_page_says_what_its_algorithm_costs(name: str, said: str) -> None:
    assert said in page(name).split("## Cost and memory")[1].split("\n## ")[0]


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name != "custom"])
def test_a_page_has_every_part_of_its_algorithms_docstring(name: str) -> None:
    parts = docstring_parts(name)
    asked_for = ("Contract", "Maths", "Loss per provider", "Fails closed when", "Deviates from the paper by", "Paper")
    assert tuple(parts) == asked_for
    text = page(name)
    assert [part for part in parts.values() if part not in text] == []


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_page_stands_on_its_own_formulas_and_counts_what_kl_costs(name: str) -> None:
    text = page(name)
    assert "as in `" not in text.split("## The loop")[0]
    with_kl = "In `[kl]`:" in text
    assert with_kl == ("with `[kl]` + P·G logprobs (reference)" in text) == ("With `[kl]`: k1 estimate" in text)
    assert ("G completions of each" in text) <= ALGORITHMS[name].rollouts


@pytest.mark.parametrize(("name", "steps"), [("ppo", "takes 2"), ("sapo", "takes 2"), ("ppo_critic", "leaves it at 1")])
def test_a_page_says_at_how_many_steps_a_clip_is_in_force(name: str, steps: str) -> None:
    assert f"The starter {steps}." in page(name).replace("\n", " ")


def test_the_page_of_ttt_has_the_score_that_is_computed() -> None:
    assert "Q + c·scale·P·√(1 + T/G) / (1 + n/G)" in page("ttt")
    assert "an expansion leaves its best two children" in page("ttt")


@pytest.mark.parametrize("name", CONFIGS)
def test_a_page_shows_the_loop_and_names_every_option(name: str) -> None:
    text = page(name)
    assert f"async def {name}_cycles(" in text
    assert "for cycle in cycles:" in text
    own = json.loads((PAGES / "options.json").read_text())[name]
    assert [option for option in own if f"`{option}`" not in text and f"`[{option}]`" not in text] == []


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("grpo", ["1.291", "−0.7746"]),
        ("grpo_nostd", ["0.625", "−0.375"]),
        ("rloo", ["0.7143", "−0.4286"]),
        ("maxrl", ["1.6667", "−1"]),
        ("ttt", ["6.3891", "−0.6805", "2.5532", "11.8487", "−0.798"]),
        ("dpo", ["0.5544"]),
        ("gspo", ["1.1052", "−2.2103"]),
        ("opd", ["0.5"]),
        ("ppo", ["| 1.25 | 1.25 | 0 | −1.25 |"]),
        ("dapo", ["| 1.25 | 1.25 | 1.25 | −1.25 |", "| 90 | −0.5 |", "| 79 | 0 |", "| 101 | −1 |"]),
        ("cispo", ["| 6 | 6 | 4 | −4 |"]),
    ],
)
def test_worked_numbers_are_the_published_ones(name: str, published: list[str]) -> None:
    shown = "\n".join(numbers(name))
    assert [number for number in published if number not in shown] == []


def test_only_algorithms_have_worked_numbers() -> None:
    assert set(NUMBERS) <= set(ALGORITHMS)
