"""SFT as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tiny_configs import sft_config

import flows

pytestmark = pytest.mark.usefixtures("prefect_server", "endpoint")


async def test_supervised_training_lowers_the_held_out_loss(tmp_path: Path) -> None:
    summary = await flows.sft(sft_config(tmp_path))
    before, after = summary["evaluation_before"]["loss"], summary["evaluation_after"]["loss"]
    assert after < before - 0.5
    rows = [json.loads(line) for line in (Path(summary["run_folder"]) / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["loss"] == pytest.approx(rows[-1]["loss_per_token"], rel=1e-4), "token_mean is nats per token"
    assert rows[-1]["loss"] < rows[0]["loss"] - 0.5
    assert summary["open_sessions"] == 0


async def test_examples_without_an_answer_are_refused_before_anything_is_allocated(tmp_path: Path) -> None:
    from flows.config import ConfigError

    data = tmp_path / "data.jsonl"
    data.write_text('{"prompt": "1 + 1 = ?"}\n{"prompt": "1 + 2 = ?", "answer": "3"}\n')
    with pytest.raises(ConfigError, match="1 of 2 examples have no `answer`, which SFT imitates"):
        await flows.sft(sft_config(tmp_path, data={"source": str(data), "heldout_fraction": 0}))
