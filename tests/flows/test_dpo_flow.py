"""DPO as a user runs it: pairs by id, a margin that rises, and what cannot be used counted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from flow_probes import Taught, metrics, sent_payloads
from tiny_configs import tiny_config

import flows
from gateway.launch import GatewayProcess


async def test_the_margin_rises_and_with_it_the_share_of_held_out_pairs_in_order(
    local: GatewayProcess, tmp_path: Path
) -> None:
    config = tiny_config(
        "dpo",
        tmp_path,
        cycles=12,
        batch_size=16,
        evaluation={"max_prompts": 16},
        optimizer={"learning_rate": 5e-3},
    )
    summary = await flows.dpo(config)
    before, after = summary["evaluation_before"], summary["evaluation_after"]
    assert before["margin"] == pytest.approx(0.0, abs=1e-5), "before the first step the policy is the reference"
    assert after["margin"] > 0.5
    assert after["preference_accuracy"] > 0.5 > before["preference_accuracy"], "at first no pair is in order"
    rows = metrics(summary)
    assert rows[0]["loss"] == pytest.approx(0.693, abs=1e-3), "ln 2: the loss is DPO's, not what the provider reports"
    assert rows[-1]["margin"] > rows[0]["margin"] + 0.5
    assert rows[-1]["loss"] < rows[0]["loss"] / 1.5
    assert summary["accuracy_before"] is None, "a pair has no answer to be right about"


async def test_pairs_are_joined_by_id_and_one_that_cannot_be_used_costs_itself_only(
    local: GatewayProcess, taught: Taught, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "pairs.jsonl"
    rows = [
        {"id": "one", "prompt": "1 + 1 = ?", "role": "chosen", "completion": "2"},
        {"id": "one", "prompt": "1 + 1 = ?", "role": "rejected", "completion": "3"},
        {"id": "two", "prompt": "2 + 2 = ?", "role": "chosen", "completion": "4"},  # its other half is missing
        {"id": "three", "prompt": "3 + 3 = ?", "role": "rejected", "completion": "7"},
        {"id": "three", "prompt": "3 + 3 = ?", "role": "chosen", "completion": "6"},
        {"id": "four", "prompt": "4 + 4 = ?", "chosen": "8", "rejected": "9" * 600},  # does not fit the context
    ]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    payloads = sent_payloads(monkeypatch)
    source = {"source": str(data), "heldout_fraction": 0}
    summary = await flows.dpo(tiny_config("dpo", tmp_path / "runs", data=source, batch_size=3, cycles=1))
    (row,) = metrics(summary)
    assert row["dropped/too_long"] == 1
    assert row["datums"] == 4
    asked, step = [payload for kind, payload in payloads if kind in {"forward", "forward_backward"}][1:]
    signs = [sorted({(weight > 0) - (weight < 0) for weight in weights_of(datum)} - {0}) for datum in step["data"]]
    assert signs == [[1], [-1], [1], [-1]], "chosen up, rejected down, pair after pair"
    for chosen, rejected in zip(asked["data"][::2], asked["data"][1::2], strict=True):
        assert chosen["input"]["token_ids"][:-1] == rejected["input"]["token_ids"][:-1], "two answers to one prompt"


def weights_of(datum: dict[str, dict[str, dict[str, list[float]]]]) -> list[float]:
    return datum["loss_inputs"]["weights"]["values"]
