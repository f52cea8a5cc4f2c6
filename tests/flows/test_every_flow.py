"""Show 1 and 5 of issue 3: every algorithm on every provider trains end to end, or is refused before anything."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from flow_probes import (
    Taught,
    Trained,
    Visit,
    all_sessions,
    ledger,
    metrics,
    plan_of,
    planned,
    sessions_of,
    typically,
)
from safetensors.numpy import load_file
from tiny_configs import tiny_config

import flows
from flows.config import ConfigError
from gateway.launch import GatewayProcess

PROVIDERS = ("local", "modal", "tinker")

# Written by hand from the table, not taken from the registry that it is to check.
EVERYWHERE = (
    *("sft", "grpo", "grpo_nostd", "grpo_len_norm", "drgrpo", "reinforce", "ppo", "cispo", "dapo", "rloo"),
    *("reinforce_pp", "maxrl", "opd", "opsd", "sdpo", "dpo", "ttt", "custom"),
)
REFUSED = {
    "ppo_critic": {"tinker": "tinker does not advertise loss_function='ppo_critic'"},
    "gspo": {"tinker": "tinker does not advertise loss_function='gspo'"},
    "dppo": {"tinker": "tinker does not advertise loss_function='dppo'"},
    "dro": {"modal": "modal does not advertise loss_function='dro'"},
    "sapo": {
        "modal": "SkyRL has the loss, sapo_policy_loss, but .* no clipped loss stands in for it",
        "tinker": "tinker does not advertise loss_function='sapo'.* no clipped loss stands in for it",
    },
}

# Prompts that hold what was sampled before are as long as that text is when it is tokenized again.
RETOLD = ("sdpo", "ttt")

# P = 2 prompts (4 examples or pairs for sft and dpo), G = 4 completions, K = 1 step.
STEP = {"forward_backward": 1, "optim_step": 1}
GROUPS = {"save_weights_for_sampler": 1, "sample": 2, **STEP}
JUDGED = {**GROUPS, "logprobs": 8}
PER_CYCLE: dict[str, dict[str, int]] = {
    **dict.fromkeys(EVERYWHERE, GROUPS),
    **dict.fromkeys(("gspo", "dppo", "dro", "sapo"), GROUPS),
    **dict.fromkeys(("reinforce_pp", "opd", "opsd", "sdpo"), JUDGED),
    "sft": STEP,
    "dpo": {"forward": 2, **STEP},
    "ppo_critic": {**GROUPS, "forward": 1, "forward_backward": 2, "optim_step": 2},
}
ENDS = {"save_state": 1, "export_lora": 1}
FROZEN = {**ENDS, "save_weights_for_sampler": 1}
ONCE: dict[str, dict[str, int]] = {
    **dict.fromkeys(PER_CYCLE, ENDS),
    **dict.fromkeys(("reinforce_pp", "opd", "opsd", "sdpo"), FROZEN),
    "ppo_critic": {**ENDS, "save_state": 2},
}


def test_the_tables_of_this_test_name_every_flow() -> None:
    assert set(flows.FLOWS) == {*EVERYWHERE, *REFUSED} == set(PER_CYCLE)


async def assert_refused(algorithm: str, folder: Path, refusal: str, **fields: Any) -> None:
    """Before any session: the gateway has none more than before, and there is not even a run folder."""
    before = await all_sessions()
    with pytest.raises(ConfigError, match=refusal):
        await flows.FLOWS[algorithm](tiny_config(algorithm, folder, **fields))
    assert await all_sessions() == before
    assert not list(folder.iterdir())


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("algorithm", flows.FLOWS)
async def test_a_flow_trains_where_the_provider_has_its_loss_and_is_refused_elsewhere(  # noqa: PLR0917 - fixtures
    algorithm: str, provider: str, visit: Visit, taught: Taught, trained: Trained, tmp_path: Path
) -> None:
    refusal = REFUSED.get(algorithm, {}).get(provider)
    if refusal:
        visit(provider)
        await assert_refused(algorithm, tmp_path, refusal, model={"name": "tiny", "provider": provider})
        return
    start = await taught(provider)
    summary = await trained(algorithm, provider)
    stepped = [row for row in metrics(summary) if row["datums"]]
    assert stepped, "no group had a signal: the test's rewards are too plain"
    assert all(math.isfinite(row["grad_norm"]) and row["grad_norm"] > 0 for row in stepped)
    adapter = load_file(Path(summary["adapter"]) / "adapter_model.safetensors")
    assert any(abs(tensor).max() > 0 for name, tensor in adapter.items() if "lora_B" in name)
    assert summary["adapter_sha256"] != start["adapter_sha256"], "the adapter is the one that training began with"
    sessions = await sessions_of(summary["flow_run_id"])
    assert {session.status for session in sessions} == {"closed"}
    assert {run.status for session in sessions for run in session.runs} == {"finished"}
    billed = sum(ledger(visit(provider), summary["flow_run_id"]).values(), Counter[str]())
    assert summary["operations"] == billed
    tokens = Counter[str]()
    for run in (run for session in sessions for run in session.runs):
        tokens.update(run.usage.model_dump(exclude={"operations"}))
    assert summary["tokens"] == {name.removesuffix("_tokens"): count for name, count in tokens.items()}


@pytest.mark.parametrize("algorithm", flows.FLOWS)
async def test_a_cycle_costs_the_operations_that_the_algorithms_page_says(
    algorithm: str, local: GatewayProcess, trained: Trained
) -> None:
    summary = await trained(algorithm, "local")
    rows = metrics(summary)
    assert all(row["datums"] for row in rows), "a cycle without a step costs less"
    expected = Counter(ONCE[algorithm])
    for row in rows:
        expected.update(PER_CYCLE[algorithm])
        expected["sample"] += row.get("resample_operations", 0)
    billed = sum(ledger(local, summary["flow_run_id"]).values(), Counter[str]())
    assert billed == +expected
    assert plan_of(summary) == billed if algorithm != "dapo" else plan_of(summary) >= billed


@pytest.mark.parametrize("algorithm", flows.FLOWS)
async def test_where_completions_have_one_length_the_plan_is_what_the_ledger_has(
    algorithm: str, local: GatewayProcess, trained: Trained
) -> None:
    summary = await trained(algorithm, "local")
    plan = await planned(summary)
    for spans, found in ((plan.operations, summary["operations"]), (plan.tokens, summary["tokens"])):
        assert all(span.least <= found.get(name, 0) <= span.most for name, span in spans.items()), (spans, found)
    if algorithm != "dapo":
        assert typically(plan.operations) == Counter(summary["operations"])
    if algorithm not in {"dapo", *RETOLD}:
        assert typically(plan.tokens) == Counter(summary["tokens"])


@pytest.mark.parametrize(
    ("algorithm", "fields"),
    [("dpo", {}), ("custom", {"loss_function": "cross_entropy"})],
)
async def test_gradient_weights_are_refused_where_cross_entropy_is_a_mean(
    algorithm: str, fields: dict[str, Any], visit: Visit, tmp_path: Path
) -> None:
    visit("mean")
    await assert_refused(algorithm, tmp_path, "local's loss_reduction is 'mean'. Use a deployment that sums", **fields)


async def test_a_mean_of_cross_entropy_is_nothing_to_an_algorithm_without_gradient_weights(
    visit: Visit, taught: Taught, tmp_path: Path
) -> None:
    visit("mean")
    state_id = (await taught("mean"))["state_id"]
    summary = await flows.grpo(tiny_config("grpo", tmp_path, state_id=state_id, cycles=1))
    assert summary["operations"]["optim_step"] == 1
