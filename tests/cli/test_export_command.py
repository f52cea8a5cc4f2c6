"""`whitney export` refuses what is not a finished run with a whole adapter, and never leaves half a folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import models
from cli.app import run_command
from flows.config import SftConfig
from models.adapter import CONFIG_FILE, WEIGHTS_FILE, matrices


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A finished run as its folder has it, with an adapter of rank 2 on the tiny model's q_proj."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "runs" / "sums"
    (folder / "adapter").mkdir(parents=True)
    tensors = {}
    for module, (rows, columns) in matrices(models.resolve("tiny")).items():
        if module.endswith("q_proj"):
            tensors[f"base_model.model.{module}.lora_A.weight"] = np.ones((2, columns), np.float32)
            tensors[f"base_model.model.{module}.lora_B.weight"] = np.ones((rows, 2), np.float32)
    save_file(tensors, folder / "adapter" / WEIGHTS_FILE)
    said = {"peft_type": "LORA", "base_model_name_or_path": "tiny", "r": 2, "lora_alpha": 4}
    (folder / "adapter" / CONFIG_FILE).write_text(json.dumps({**said, "target_modules": ["q_proj"]}))
    (folder / "adapter" / "README.md").write_text("a card")
    config = SftConfig.model_validate({"model": {"name": "tiny"}, "lora": {"rank": 2, "alpha": 4}})
    data = {"description": "addition-1digit: 59 examples", "fingerprint": "f" * 64}
    record = {"algorithm": "sft", "config": config.model_dump(mode="json"), "data": data}
    (folder / "config.json").write_text(json.dumps(record))
    (folder / "summary.json").write_text(json.dumps({"cycles": 1}))
    return folder


def test_a_run_is_found_by_name_and_its_adapter_copied_with_the_card(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["export", "sums"]) == 0
    copy = tmp_path / "sums-adapter"
    assert capsys.readouterr().out == f"{copy}\n"
    assert {file.name for file in copy.iterdir()} == {CONFIG_FILE, WEIGHTS_FILE, "README.md"}


def test_merged_it_is_a_model_of_its_own_with_a_card_of_its_own(run: Path, tmp_path: Path) -> None:
    assert run_command(["export", str(run), "--merge", "--to", "out/merged"]) == 0
    merged = models.resolve(str(tmp_path / "out" / "merged"))
    assert "# merged" in (merged.path / "README.md").read_text()
    assert json.loads((merged.path / "generation_config.json").read_text()) == {"eos_token_id": [2]}
    assert [one.name for one in (tmp_path / "out").iterdir()] == ["merged"]


def no_folder(run: Path) -> None:
    (run / "config.json").unlink()


def not_ended(run: Path) -> None:
    (run / "summary.json").unlink()


def adapter_gone(run: Path) -> None:
    (run / "adapter").rename(run / "elsewhere")


def damaged(run: Path) -> None:
    weights = run / "adapter" / WEIGHTS_FILE
    weights.write_bytes(weights.read_bytes()[:-1])


def edited(run: Path) -> None:
    (run / "summary.json").write_text("{")


def of_a_pipeline(run: Path) -> None:
    (run / "summary.json").write_text(json.dumps({"stages": [{"run_folder": "/elsewhere/sums/1-sft"}]}))


def taken(run: Path) -> None:
    (run.parents[1] / "sums-adapter").mkdir()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (no_folder, "there is no run folder sums, nor runs/sums"),
        (not_ended, "runs/sums has no summary.json: the run has not come to its end"),
        (adapter_gone, "runs/sums/adapter is gone: unpack runs/sums/adapter.tar.gz there"),
        (damaged, f"runs/sums/adapter: the exported adapter cannot be used: {WEIGHTS_FILE} cannot be read"),
        (edited, "runs/sums/summary.json is not as a run leaves it"),
        (of_a_pipeline, "runs/sums is a pipeline: name a stage's folder, runs/sums/1-sft for the last one's"),
        (taken, "--to sums-adapter is there already"),
    ],
)
def test_what_cannot_be_exported_is_one_message_and_status_2(
    change: Callable[[Path], None],
    message: str,
    run: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    change(run)
    before = sorted(tmp_path.iterdir())
    assert run_command(["export", "sums"]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""
    assert sorted(tmp_path.iterdir()) == before


def test_a_base_that_is_not_here_is_asked_for_and_another_is_refused(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = json.loads((run / "config.json").read_text())
    record["config"]["model"]["name"] = "Org/Tiny"
    (run / "config.json").write_text(json.dumps(record))
    assert run_command(["export", "sums", "--merge"]) == 2
    assert "unknown model 'Org/Tiny'" in (told := capsys.readouterr().err)
    assert "--base names the folder of the base model" in told
    assert run_command(["export", "sums", "--merge", "--base", str(run)]) == 2
    assert f"--base {run} is no model folder: model.safetensors is missing" in capsys.readouterr().err
    assert run_command(["model", "tiny", "--copy-to", "base"]) == 0
    assert run_command(["export", "sums", "--merge", "--base", "base"]) == 0

    narrow = {name: np.ones((8, 8), np.float32) for name in ("model.layers.0.self_attn.q_proj.weight",)}
    save_file(narrow, tmp_path / "base" / "model.safetensors")
    assert run_command(["export", "sums", "--merge", "--base", "base", "--to", "other"]) == 2
    assert "has shape [2, 64], must have [2, 8]" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()
