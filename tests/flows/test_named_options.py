"""A paper's variant is an option with a name: it changes what is trained, and the run's summary says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from flow_probes import Taught, Trained, first_attempt, ledger, lose_answer, metrics, retry
from tiny_configs import tiny_config

import flows
from gateway.launch import GatewayProcess

JUDGED = {"save_weights_for_sampler": 1, "logprobs": 16}


@pytest.mark.parametrize(
    ("algorithm", "option"),
    [
        ("drgrpo", {"normalizer": "constant"}),
        ("maxrl", {"estimator": "mean_normalized"}),
        ("grpo", {"std": "sample"}),
        ("rloo", {"whiten": True}),
        ("reinforce_pp", {"kl": "k2_gradient"}),
        ("reinforce_pp", {"kl": "k1"}),
        ("ppo", {"clip_low": 1.0, "clip_high": 1.0, "steps_per_batch": 2}),
        ("ppo_critic", {"gae_lambda": 0.0}),
        ("opd", {"advantage_clip": 0.1}),
        ("dpo", {"label_smoothing": 0.3}),
        ("ttt", {"beta": 2.0}),
    ],
    ids=str,
)
async def test_an_option_trains_another_adapter_than_the_default_and_is_named_in_the_summary(
    algorithm: str, option: dict[str, Any], taught: Taught, trained: Trained, tmp_path: Path
) -> None:
    default = await trained(algorithm, "local")
    state_id = (await taught("local"))["state_id"]
    varied = await flows.FLOWS[algorithm](tiny_config(algorithm, tmp_path, state_id=state_id, **option))
    assert varied["adapter_sha256"] != default["adapter_sha256"]
    (name, value), *_ = option.items()
    assert varied["options"][name] == value != default["options"][name]


@pytest.mark.parametrize(("algorithm", "place"), [("rloo", "advantage"), ("dapo", "advantage"), ("grpo", "reward")])
async def test_a_kl_term_brings_a_reference_that_the_policy_moves_away_from(  # noqa: PLR0917 - fixtures
    algorithm: str, place: str, local: GatewayProcess, taught: Taught, trained: Trained, tmp_path: Path
) -> None:
    state_id = (await taught("local"))["state_id"]
    kl = {"coef": 0.2, "place": place}
    summary = await flows.FLOWS[algorithm](tiny_config(algorithm, tmp_path, state_id=state_id, kl=kl))
    assert ledger(local, summary["flow_run_id"])["reference"] == JUDGED
    first, second = metrics(summary)
    assert abs(first["kl_reference"]) < 1e-4
    assert second["kl_reference_k3"] > 1e-3
    assert summary["adapter_sha256"] != (await trained(algorithm, "local"))["adapter_sha256"]
    assert summary["options"]["kl"]["place"] == place


async def test_a_moving_baseline_is_found_again_after_a_retry(
    local: GatewayProcess, taught: Taught, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {
        "state_id": (await taught("local"))["state_id"],
        "baseline": "moving",
        "save_every": 1,
        "cycles": 3,
    }
    undisturbed = await flows.reinforce(tiny_config("reinforce", tmp_path / "undisturbed", **options))
    mend = lose_answer(monkeypatch, "save_state", 2)
    flow_run_id, failed = await first_attempt(flows.reinforce, tiny_config("reinforce", tmp_path, **options))
    assert failed.is_failed()
    mend()
    retried = await (await retry(flows.reinforce, flow_run_id)).result()
    assert [row["reward_mean"] for row in metrics(retried)] == [row["reward_mean"] for row in metrics(undisturbed)]
    assert retried["adapter_sha256"] == undisturbed["adapter_sha256"]
