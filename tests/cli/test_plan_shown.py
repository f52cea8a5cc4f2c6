"""What of a plan is shown: in terminals of all widths, in the README, in the published schema."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from algorithms.gpus import gpu
from algorithms.memory import Memory
from algorithms.spans import Span
from cli.app import run_command
from cli.plan_schema import plan_schema
from flows.plan.gpu_fit import fit
from flows.plan.hardware import Hardware
from flows.plan.limits import limit_warning

pytestmark = pytest.mark.usefixtures("ledger_stays_as_it_was")

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("hardware", "here", "said", "fits"),
    [
        (Hardware(gpu("l4")), False, "It does not fit: it takes 30 GB of the 24 GB of 1 × l4, ", False),
        (Hardware(gpu("l4"), 2), False, "On a GPU it takes 30 GB of the 48 GB of 2 × l4, ", True),
        (Hardware(gpu("l4")), True, "It does not fit: it would take 30 GB of the 24 GB of 1 × l4, ", True),
        (None, False, "On a GPU it takes 30 GB: the smallest that holds it is the a100-40gb, ", True),
    ],
    ids=["too small", "two of them", "works here", "none named"],
)
def test_a_plan_says_whether_a_gpu_holds_its_models(
    hardware: Hardware | None, here: bool, said: str, fits: bool
) -> None:
    found = fit(Memory(weights=16e9, kv_cache=14e9), hardware, here=here)
    assert found.told.startswith(said)
    assert found.told.endswith(" and 500 MB for each adapter, tinker-nomics's round figure.")
    assert found.fits == fits, "what does not fit is a warning, where it is to run there"


@pytest.mark.parametrize(
    ("name", "limit", "used", "said"),
    [
        (
            "max_tokens",
            2_000_000,
            0,
            "budget.max_tokens = 2,000,000 may end it early: 15 are typical, 30,000,000 the most.",
        ),
        (
            "max_cost_per_month",
            20,
            7.5,
            "budget.max_cost_per_month = 20.00 € will end it early: 7.50 € are used by 'p', 12.50 € are left, and "
            "15.00 € are typical, 30,000,000.00 € the most.",
        ),
        ("max_operations", 30_000_000, 0, None),
    ],
    ids=["may", "will", "suffices"],
)
def test_a_limit_is_told_in_the_digits_in_which_it_is_written(
    name: str, limit: float, used: float, said: str | None
) -> None:
    by = "p" if used else None
    assert limit_warning(name, limit, Span(1, 15, 30_000_000), "€", used=used, by=by) == said


@pytest.mark.parametrize("columns", [40, 60, 80, 160])
def test_what_is_shown_fits_the_terminal(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert run_command(["plan", "dapo.toml", "--prices", "prices.toml"]) == 0
    assert run_command(["plan", "sft.toml", "dapo.toml", "--prices", "prices.toml"]) == 0
    assert run_command(["plan", "pipeline.toml"]) == 0
    shown = [line.rstrip() for line in capsys.readouterr().out.splitlines() if not line.startswith("Whitney at ")]
    assert max(map(len, shown)) <= columns
    text = " ".join(" ".join(shown).split())
    assert "…" not in text, "no number is cut, whatever the width"
    assert "Completions: 3 tokens each, half of sampling.max_tokens; yours by --completion-tokens" in text
    unbroken = text.replace(" ", "")
    assert "whatis6+5?<|im_end|>↵<|im_start|>a↵⟦1·1·<|im_end|>⟧" in unbroken, "the answer, and what of it is trained"
    assert "↵<|im_start|>a↵⟦4×upto6tokens⟧" in unbroken
    assert "The data's own answers: 59 scored, mean reward 1" in text
    assert "Typically 1.2 groups a cycle are drawn again" in text
    assert "Only 1 has: batch_size" in text
    for name in (
        "cost of operations, €",
        "cost of tokens, €",
        "cost of GPU time, €",
        "all cost, €",
        "time on 2 × h100",
    ):
        assert name in text
    assert "stage rl" in text
    assert "Nothing was allocated" in text
    if columns >= 80:
        assert "4 cycles once a cycle at least typically at most" in text
        assert "once: 2 measurements of 4 held-out examples, the export; typically = once + 4 × a cycle" in text
        assert "5 cycles at least typically at most" in text, "of a pipeline, which has no mean cycle"
        of = {name: [line.split() for line in shown if line.startswith(f" {name} ")] for name in KINDS}
        assert of["forward_backward"][:3] == [
            ["forward_backward", "1", "0", "4", "4"],
            ["forward_backward", "4", "4"],
            ["forward_backward", "1", "3", "3", "3"],
        ]
        assert of["export_lora"][0] == ["export_lora", "1", "1", "1", "1"]
        assert of["sample"][0] == ["sample", "8", "3.25", "16", "21", "40"]
    if columns < 60:
        assert "optim_step once a cycle" not in text
        assert "optim_step a cycle 1 at least 0 typically 4 at most 4" in text


KINDS = ("forward_backward", "export_lora", "sample")


def test_a_block_of_several_cycles_is_saved_in_a_rhythm_and_the_operations_stand_as_a_run_asks_for_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run_command(["plan", "grpo.toml", "--set", "save_every=3", "--set", "kl.coef=0.1"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"save_state +every 3rd +2 +2 +2 *\n", shown)
    once = r"all operations +11 +53 +65 +65 *\n"
    assert re.search(once, shown), "no sum of a cycle beside what no cycle has as a number"
    names = ("save_weights_for_sampler", "sample", "logprobs", "forward_backward", "optim_step", "save_state")
    places = [shown.index(f"\n {name} ") for name in (*names, "export_lora", "all operations", "prefill")]
    assert places == sorted(places)
    assert "Prefill: the prompts that are sampled from, and all that logprobs reads." in " ".join(shown.split())


def test_the_readme_shows_what_is_shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    readme = (ROOT / "README.md").read_text().split("\n## Before you spend\n")[1]
    command = next(line for line in readme.splitlines() if line.startswith("whitney plan "))
    assert run_command(["init", "grpo", "mine.toml"]) == 0
    assert run_command(command.split()[1:]) == 0
    shown = "\n".join(line.rstrip() for line in capsys.readouterr().out.splitlines())
    assert readme.split("\n```\n")[2] in shown


def test_the_published_schema_is_the_one_that_is_printed() -> None:
    published = (ROOT / "docs" / "plan.schema.json").read_text()
    assert json.loads(published) == plan_schema(), "regenerate it: make docs"
