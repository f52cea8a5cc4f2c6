"""Several steps on one batch, and what an aggregation does to the gradient that goes through the wire."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from flow_probes import Taught, ledger, lines, metrics, sent_payloads
from tiny_configs import tiny_config

import flows
from gateway.launch import GatewayProcess

# Far above any gradient norm here, so that what is reported is what was sent.
UNCLIPPED = {"learning_rate": 2e-2, "grad_clip_norm": 1e9}
MAX_TOKENS = 12


async def test_with_two_steps_a_batch_the_second_sees_a_ratio_that_is_clipped(
    local: GatewayProcess, taught: Taught, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state_id = (await taught("local"))["state_id"]
    payloads = sent_payloads(monkeypatch)
    summary = await flows.ppo(
        tiny_config("ppo", tmp_path, state_id=state_id, steps_per_batch=2, optimizer=UNCLIPPED, cycles=1)
    )
    assert ledger(local, summary["flow_run_id"])["policy"] == {
        "save_weights_for_sampler": 1,
        "sample": 2,
        "forward_backward": 2,
        "optim_step": 2,
        "save_state": 1,
        "export_lora": 1,
    }
    first, second = (payload for kind, payload in payloads if kind == "forward_backward")
    assert first == second, "the same batch, with the sampler's log-probs"
    (row,) = metrics(summary)
    assert row["kl_sampler_trainer_k3"] < 1e-6, "at the first step sampler and trainer hold the same weights"
    assert row["kl_update"] > 1e-3, "at the second the policy has moved"
    assert 0 < row["clip_fraction"] <= 1


@pytest.mark.parametrize("algorithm", ["grpo", "dro", "cispo"])
async def test_an_aggregation_scales_the_gradient_by_what_it_divides_by(
    algorithm: str, local: GatewayProcess, taught: Taught, tmp_path: Path
) -> None:
    state_id = (await taught("local"))["state_id"]
    norms: dict[str, float] = {}
    rows: list[dict[str, Any]] = []
    for aggregation in ("sum", "token_mean", "constant"):
        config = tiny_config(
            algorithm,
            tmp_path,
            state_id=state_id,
            cycles=1,
            aggregation=aggregation,
            optimizer=UNCLIPPED,
            sampling={"max_tokens": MAX_TOKENS},
        )
        summary = await flows.FLOWS[algorithm](config)
        norms[aggregation] = metrics(summary)[0]["grad_norm"]
        rows = lines(Path(summary["run_folder"]) / "samples" / "cycle-0000.jsonl")
    groups = [rows[:4], rows[4:]]
    sent = [row for group in groups if len({row["reward"] for row in group}) > 1 for row in group]
    tokens = sum(row["tokens"] for row in sent)
    assert norms["sum"] / norms["token_mean"] == pytest.approx(tokens, rel=1e-3)
    assert norms["sum"] / norms["constant"] == pytest.approx(len(sent) * MAX_TOKENS, rel=1e-3)
