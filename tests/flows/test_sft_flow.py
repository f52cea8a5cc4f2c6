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
    with pytest.raises(ConfigError, match="1 of 2 training examples have no `answer`, which SFT imitates"):
        await flows.sft(sft_config(tmp_path, data={"source": str(data), "heldout_fraction": 0}))


async def test_held_out_examples_without_an_answer_are_refused_too(tmp_path: Path) -> None:
    from flows.config import ConfigError

    train, heldout = tmp_path / "train.jsonl", tmp_path / "heldout.jsonl"
    train.write_text('{"prompt": "1 + 1 = ?", "answer": "2"}\n')
    heldout.write_text('{"prompt": "1 + 2 = ?"}\n')
    with pytest.raises(ConfigError, match="1 of 1 held-out examples have no `answer`"):
        await flows.sft(sft_config(tmp_path, data={"source": str(train), "heldout": str(heldout)}))


async def test_a_held_out_answer_that_does_not_fit_the_context_is_left_out_of_the_loss(tmp_path: Path) -> None:
    train, heldout = tmp_path / "train.jsonl", tmp_path / "heldout.jsonl"
    train.write_text('{"prompt": "1 + 1 = ?", "answer": "2"}\n')
    rows = [{"prompt": "1 + 2 = ?", "answer": "3"}, {"prompt": "9 + 9 = ?", "answer": "9" * 600}]
    heldout.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = sft_config(tmp_path, data={"source": str(train), "heldout": str(heldout)}, cycles=1)
    summary = await flows.sft(config)
    assert summary["evaluation_after"]["loss"] > 0
    assert summary["operations"]["forward"] == 2
