from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import psutil
import pytest
from prefect_tables import with_tables

from cli.demo import what_was_learned
from cli.prefect_answers import is_up
from flows.config import DataConfig, GrpoConfig, SamplingConfig
from tasks.python_process import command

BEFORE = {"accuracy": 0.125, "greedy_accuracy": 0.25, "finished_fraction": 0.08}
CONFIG = GrpoConfig(sampling=SamplingConfig(max_tokens=12))
AFTER = {"accuracy": 0.9375, "greedy_accuracy": 1.0, "finished_fraction": 1.0}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [{"key": "3+5"}, {"key": "3+5"}, {"key": "4+4"}]
    (tmp_path / "heldout.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def told(folder: Path, before: dict[str, float], after: dict[str, float]) -> str:
    return "\n".join(what_was_learned({"evaluation_before": before, "evaluation_after": after}, folder, CONFIG))


def test_the_demo_says_what_was_held_out_and_that_the_gain_may_be_style(folder: Path) -> None:
    text = told(folder, BEFORE, AFTER)
    assert "12.5% before, 93.8% after" in text
    assert "Held out: 3 questions, listed in heldout.jsonl. They ask for the sums of 2 pairs of numbers" in text
    assert "may be answering style rather than knowledge: 92% of the replies were cut off at 12 tokens" in text
    assert "25.0% before and 100.0% after" in text
    assert "did not rise" not in text


def test_where_no_reply_was_cut_off_before_the_demo_does_not_speak_of_style(folder: Path) -> None:
    text = told(folder, BEFORE | {"finished_fraction": 1.0}, AFTER)
    assert "style" not in text
    assert "The gain is not that replies end sooner: 0% of the replies" in text


@pytest.mark.parametrize("accuracy", [0.125, 0.1])
def test_a_demo_that_has_not_learned_says_so_and_explains_no_gain(folder: Path, accuracy: float) -> None:
    text = told(folder, BEFORE, AFTER | {"accuracy": accuracy})
    assert "It did not rise" in text
    assert "gain" not in text


def test_the_demo_claims_nothing_that_was_not_measured(folder: Path) -> None:
    assert what_was_learned({"evaluation_before": None, "evaluation_after": None}, folder, CONFIG) == []
    less = {"evaluation_before": BEFORE | {"greedy_accuracy": None}, "evaluation_after": AFTER}
    assert "greedy" not in "\n".join(what_was_learned(less, folder, CONFIG))


def test_of_other_data_it_says_no_more_than_how_much_was_held_out(folder: Path) -> None:
    capitals = CONFIG.model_copy(update={"data": DataConfig(source="capitals")})
    text = "\n".join(what_was_learned({"evaluation_before": BEFORE, "evaluation_after": AFTER}, folder, capitals))
    assert "Held out: 3 questions, listed in heldout.jsonl." in text
    assert "pairs" not in text


def test_the_demo_runs_everything_and_leaves_nothing_running(tmp_path: Path) -> None:
    config = tmp_path / "tiny.toml"
    config.write_text(
        'algorithm = "grpo"\nname = "tiny"\nseed = 5\ncycles = 1\ngroups_per_cycle = 2\ngroup_size = 2\n'
        '[model]\nname = "tiny"\n[sampling]\nmax_tokens = 4\n[evaluation]\nmax_prompts = 2\nsamples = 1\n'
    )
    ours = ("WHITNEY_", "PREFECT_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    for name in ("gateway.py", "tasks.py"):  # the user's own: they hide nothing of ours
        (tmp_path / name).write_text("raise RuntimeError\n")
    with_tables(tmp_path / ".whitney" / "prefect")
    demo = command("cli", "demo", "--config", str(config))
    done = subprocess.run(demo, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (page,) = re.findall(r"Prefect:   (http://\S+)/runs/flow-run/\S+", done.stdout)
    assert f"Prefect UI: {page} " in done.stdout
    assert (tmp_path / "runs" / "tiny" / "adapter" / "adapter_model.safetensors").is_file()
    assert json.loads((tmp_path / "runs" / "tiny" / "config.json").read_text())["config"]["seed"] == 5
    assert not is_up(f"{page}/api")
    assert [p.info for p in psutil.process_iter(["pid", "cmdline"]) if str(tmp_path) in str(p.info["cmdline"])] == []
    assert list((tmp_path / ".whitney" / "gateways").iterdir()) == []
