from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from cli.demo import what_was_learned
from cli.prefect_server import is_up
from flows.config import DataConfig, GrpoConfig, SamplingConfig

BEFORE = {"accuracy": 0.125, "greedy_accuracy": 0.25, "finished_fraction": 0.08}
CONFIG = GrpoConfig(sampling=SamplingConfig(max_tokens=12))
AFTER = {"accuracy": 0.9375, "greedy_accuracy": 1.0, "finished_fraction": 1.0}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [{"key": "3+5"}, {"key": "3+5"}, {"key": "4+4"}]
    (tmp_path / "heldout.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def test_the_demo_says_what_was_held_out_and_how_much_is_style(folder: Path) -> None:
    text = "\n".join(what_was_learned({"evaluation_before": BEFORE, "evaluation_after": AFTER}, folder, CONFIG))
    assert "12.5% before, 93.8% after" in text
    assert "3 questions about 2 pairs of numbers that training has seen in neither order" in text
    assert "before training 92% of the replies were cut off at 12 tokens, still talking, after it 0%" in text
    assert "25.0% before and 100.0% after" in text


def test_the_demo_claims_nothing_that_was_not_measured(folder: Path) -> None:
    assert what_was_learned({"evaluation_before": None, "evaluation_after": None}, folder, CONFIG) == []
    less = {"evaluation_before": BEFORE | {"greedy_accuracy": None}, "evaluation_after": AFTER}
    assert "greedy" not in "\n".join(what_was_learned(less, folder, CONFIG))


def test_of_other_data_it_says_no_more_than_how_much_was_held_out(folder: Path) -> None:
    capitals = CONFIG.model_copy(update={"data": DataConfig(source="capitals")})
    text = "\n".join(what_was_learned({"evaluation_before": BEFORE, "evaluation_after": AFTER}, folder, capitals))
    assert "Held out: 3 questions, listed" in text


def test_the_demo_runs_everything_and_leaves_nothing_running(tmp_path: Path) -> None:
    config = tmp_path / "tiny.toml"
    config.write_text(
        'algorithm = "grpo"\nname = "tiny"\ncycles = 1\ngroups_per_cycle = 2\ngroup_size = 2\n'
        '[model]\nname = "tiny"\n[sampling]\nmax_tokens = 4\n[evaluation]\nmax_prompts = 2\nsamples = 1\n'
    )
    ours = ("WHITNEY_", "PREFECT_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    command = [sys.executable, "-m", "cli", "demo", "--config", str(config)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (page,) = re.findall(r"Prefect:   (http://\S+)/runs/flow-run/\S+", done.stdout)
    assert f"Prefect UI: {page} " in done.stdout
    assert (tmp_path / "runs" / "tiny" / "adapter" / "adapter_model.safetensors").is_file()
    assert not is_up(f"{page}/api")
    assert [p.info for p in psutil.process_iter(["pid", "cmdline"]) if str(tmp_path) in str(p.info["cmdline"])] == []
    assert list((tmp_path / ".whitney" / "gateways").iterdir()) == []
