"""PPO's critic: its state goes where the policy's goes, and it learns what states are worth."""

from __future__ import annotations

from pathlib import Path
from statistics import mean
from typing import Any

import pytest
from flow_probes import Taught, first_attempt, ledger, lines, lose_answer, metrics, retry, sent_payloads
from tiny_configs import tiny_config

import flows
from gateway.launch import GatewayProcess

CRITICS_OWN = ("critic_loss", "critic_value_mean", "critic_explained_variance", "critic_grad_norm")


async def test_after_a_retry_both_runs_go_on_from_the_states_their_block_saved(
    local: GatewayProcess, taught: Taught, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"state_id": (await taught("local"))["state_id"], "save_every": 1, "cycles": 3}
    undisturbed = await flows.ppo_critic(tiny_config("ppo_critic", tmp_path / "undisturbed", **options))
    # A block saves twice: the third answer is one of the second block's.
    mend = lose_answer(monkeypatch, "save_state", 3)
    flow_run_id, failed = await first_attempt(flows.ppo_critic, tiny_config("ppo_critic", tmp_path, **options))
    assert failed.is_failed()
    mend()
    retried = await (await retry(flows.ppo_critic, flow_run_id)).result()
    assert ledger(local, flow_run_id, attempt=2)["critic"]["optim_step"] == 2, "the first block is adopted"
    for ours, theirs in zip(metrics(retried), metrics(undisturbed), strict=True):
        assert [ours[name] for name in CRITICS_OWN] == [theirs[name] for name in CRITICS_OWN]
    assert retried["adapter_sha256"] == undisturbed["adapter_sha256"]
    states = lines(Path(retried["run_folder"]) / "states.jsonl")
    critics = [state["carry"]["critic_state_id"] for state in states]
    assert len({*critics, *(state["state_id"] for state in states)}) == 6, "six states, none of them shared"


async def test_the_critic_learns_the_returns_of_a_policy_that_stands_still(
    local: GatewayProcess, taught: Taught, tmp_path: Path
) -> None:
    config = tiny_config(
        "ppo_critic",
        tmp_path,
        state_id=(await taught("local"))["state_id"],
        cycles=20,
        group_size=8,
        optimizer={"learning_rate": 1e-9, "schedule": "constant"},
        critic_learning_rate=2e-2,
    )
    rows = metrics(await flows.ppo_critic(config))
    assert rows[0]["critic_value_mean"] == pytest.approx(0.0, abs=1e-6), "a fresh value head says nothing"
    early, late = (mean([row["critic_loss"] for row in part]) for part in (rows[:5], rows[-5:]))
    assert late < early / 2
    # γ is 1, and a completion is worth the same at each of its tokens.
    said, true = (mean([row[name] for row in rows[-5:]]) for name in ("critic_value_mean", "reward_mean"))
    assert said == pytest.approx(true, abs=0.2)


async def test_the_critic_is_asked_before_the_step_and_told_the_values_it_gave(
    local: GatewayProcess, taught: Taught, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    payloads = sent_payloads(monkeypatch)
    state_id = (await taught("local"))["state_id"]
    sent = len(payloads)
    await flows.ppo_critic(tiny_config("ppo_critic", tmp_path, state_id=state_id, cycles=1, value_clip=0.3))
    asked, *steps = [payload for kind, payload in payloads[sent:] if kind in {"forward", "forward_backward"}]
    by_loss = {step["loss_function"]: step for step in steps}
    assert set(by_loss) == {"ppo", "ppo_critic"}
    assert by_loss["ppo_critic"]["loss_config"] == {"value_clip": 0.3}
    assert by_loss["ppo"]["loss_config"] == {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}
    assert [datum["input"] for datum in asked["data"]] == [datum["input"] for datum in by_loss["ppo_critic"]["data"]]
    # A critic's weight is shared out over the batch's tokens, its values and returns are as they were reckoned.
    weights = [
        weight for datum in by_loss["ppo_critic"]["data"] for weight in datum["loss_inputs"]["weights"]["values"]
    ]
    assert sum(weights) == pytest.approx(1.0)
    assert len({weight for weight in weights if weight}) == 1
