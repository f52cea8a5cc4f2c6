"""A budget: the ledger shows no more than its limit, however small, and a run it has stopped goes on as if it had not.

`test_budget_gate.py` has the gate by itself.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from flow_probes import Taught, all_sessions, first_attempt, ledger, lines, lose_answer, retry
from prefect.client.orchestration import get_client
from tiny_configs import tiny_config

import flows
from flows.checks.prepare import prepare
from flows.config import ConfigError
from flows.counts.operations import planned_operations
from flows.counts.parts import least_useful
from flows.durable.budget.refusals import require_sense
from gateway.launch import GatewayProcess

RUNS: dict[str, dict[str, Any]] = {
    "sft": {"batch_size": 2, "evaluation": {"samples": 1, "max_prompts": 1}},
    "grpo": {},
}
HELDOUT = {"sft": 1, "grpo": 0}

# Slow learners, whose groups still differ in the last cycle, so that every cycle has a gradient.
SLOWLY: dict[str, Any] = {"optimizer": {"learning_rate": 2e-3}}


def capped(config: Any, name: str = "", **limits: Any) -> Any:
    """The configuration with limits, checked as a file's would be."""
    table = {**config.model_dump(mode="json"), "budget": limits, **({"name": name} if name else {})}
    return type(config).model_validate(table)


def billed(gateway: GatewayProcess, flow_run_id: str | UUID, attempts: int = 1) -> Counter[str]:
    """What the ledger has of a flow run."""
    parts = (ledger(gateway, flow_run_id, attempt).values() for attempt in range(1, attempts + 1))
    return sum((usage for part in parts for usage in part), Counter[str]())


@pytest.mark.parametrize("algorithm", sorted(RUNS))
async def test_at_every_limit_the_ledger_shows_no_more_and_the_last_block_is_exported(
    algorithm: str, local: GatewayProcess, taught: Taught, tmp_path: Path
) -> None:
    state_id = (await taught("local"))["state_id"]
    config = tiny_config(algorithm, tmp_path, state_id=state_id, cycles=2, save_every=1, **SLOWLY, **RUNS[algorithm])
    plan = planned_operations(algorithm, config, HELDOUT[algorithm])
    least = least_useful(algorithm, config, HELDOUT[algorithm]).total()
    for limit in range(least, plan.total() + 1):
        summary = await flows.FLOWS[algorithm](capped(config, f"{algorithm}-{limit}", max_operations=limit))
        cost = billed(local, summary["flow_run_id"])
        blocks = lines(Path(summary["run_folder"]) / "states.jsonl")
        assert cost.total() <= limit
        assert summary["budget"]["used"]["budget.max_operations"] == {"limit": limit, "used": cost.total()}
        assert summary["state_id"] == blocks[-1]["state_id"]
        assert summary["open_sessions"] == 0
        if limit < plan.total():
            assert summary["stopped"].startswith(f"budget.max_operations = {limit}: ")
        else:
            assert (summary["stopped"], cost) == (None, plan)


@pytest.mark.parametrize("algorithm", sorted(RUNS))
async def test_a_limit_that_leaves_no_adapter_is_refused_and_the_least_that_does_is_named(
    algorithm: str, local: GatewayProcess, tmp_path: Path
) -> None:
    config = tiny_config(algorithm, tmp_path, **RUNS[algorithm])
    least = least_useful(algorithm, config, HELDOUT[algorithm]).total()
    for limit in range(1, least):
        client, inputs = await prepare(algorithm, capped(config, max_operations=limit))
        await client.aclose()
        with pytest.raises(ConfigError, match=rf"budget.max_operations = {limit}: .* needs {least} at least"):
            require_sense(inputs, goes_on=False)


@pytest.mark.parametrize(
    ("field", "told"),
    [
        # 2 prompts of 22 tokens, and 2 · 4 completions of 6 at their longest; 20 for the export, 1 a token.
        ("max_tokens", r"needs 92 at least \(44 prefill tokens, 48 sampled tokens, completions at their longest: "),
        (
            "max_cost",
            r"needs 112.00 USD at least \(1 export_lora, 1 forward_backward, 1 optim_step, 44 prefill tokens, ",
        ),
    ],
    ids=["tokens", "cost"],
)
async def test_a_limit_on_tokens_or_money_that_no_first_block_keeps_is_refused_with_the_least_that_one_does(
    field: str, told: str, local: GatewayProcess, tmp_path: Path
) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text("[tokens]\nprefill = 1e6\nsampled = 1e6\n[operations]\nexport_lora = 20\n")
    config = tiny_config("grpo", tmp_path, save_every=1)
    least = int(float(told.split()[1]))
    for limit in (least - 1, least):
        client, inputs = await prepare("grpo", capped(config, **{field: limit, "prices": str(prices)}))
        await client.aclose()
        if limit == least:
            require_sense(inputs, goes_on=False)
            continue
        with pytest.raises(ConfigError, match=rf"budget\.{field} = {limit}\D.*{told}"):
            require_sense(inputs, goes_on=False)


async def test_a_run_whose_limit_is_refused_allocates_nothing(local: GatewayProcess, tmp_path: Path) -> None:
    before = await all_sessions()
    with pytest.raises(ConfigError, match=r"budget\.max_operations = 3: "):
        await flows.grpo(capped(tiny_config("grpo", tmp_path), max_operations=3))
    assert await all_sessions() == before


async def test_an_export_whose_answer_was_lost_is_billed_again_and_the_limit_that_allows_it_is_named(
    local: GatewayProcess, taught: Taught, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state_id = (await taught("local"))["state_id"]
    config = tiny_config("grpo", tmp_path, state_id=state_id, cycles=2, save_every=1, **SLOWLY)
    least = least_useful("grpo", config, 0).total()
    with monkeypatch.context() as once:
        lose_answer(once, "export_lora", 1)
        flow_run_id, state = await first_attempt(flows.grpo, capped(config, max_operations=least))
    assert state.is_failed()
    state = await retry(flows.grpo, flow_run_id)
    assert (state.is_failed(), str(state.message)) == (
        True,
        f"budget.max_operations = {least}: {least} used; the export needs 1 more. The last block is saved, and there "
        f"is no adapter of it yet. Go on with budget.max_operations = {least + 1} or more",
    )
    assert billed(local, flow_run_id, 2).total() == least
    async with get_client() as api:
        raised = capped(config, max_operations=least + 1).model_dump(mode="json")
        await api.update_flow_run(flow_run_id, parameters={"config": raised})
    summary = await (await retry(flows.grpo, flow_run_id)).result()
    assert Path(summary["adapter"]).is_dir()
    assert billed(local, flow_run_id, 3).total() == least + 1


# Each is stopped in the middle of its second block, by what nobody knows before it: what is drawn again, what a
# function of one's own asks for. By tokens, money and time: test_budget_stops.py.
MIDDLE: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "drawn again": ("dapo", {"resample": {"target_group_size": 6}}, {"max_operations": 15}),
    "asked by a build_loss": ("custom", {"build_loss": "budget_losses:asks_much"}, {"max_operations": 17}),
}


@pytest.mark.parametrize("case", MIDDLE)
async def test_stopped_in_the_middle_of_a_block_and_resumed_it_ends_as_one_that_never_stopped(
    case: str, local: GatewayProcess, taught: Taught, tmp_path: Path
) -> None:
    algorithm, fields, limits = MIDDLE[case]
    state_id = (await taught("local"))["state_id"]
    config = tiny_config(algorithm, tmp_path, state_id=state_id, cycles=2, save_every=1, **SLOWLY, **fields)
    never = await flows.FLOWS[algorithm](config.model_copy(update={"name": "never-stopped"}))
    flow_run_id, state = await first_attempt(flows.FLOWS[algorithm], capped(config, **limits))
    stopped = await state.result()
    assert state.is_completed()
    assert stopped["cycles"] == 1
    assert stopped["redone"]["operations"] > 0, "something of the block was posted"
    assert stopped["budget"]["left_out"] == ["cycle 2"]
    assert stopped["open_sessions"] == 0
    assert Path(stopped["adapter"]).is_dir()
    for limit, row in stopped["budget"]["used"].items():
        assert row["used"] <= row["limit"], limit
    async with get_client() as api:
        await api.update_flow_run(flow_run_id, parameters={"config": config.model_dump(mode="json")})
    resumed = await (await retry(flows.FLOWS[algorithm], flow_run_id)).result()
    assert (resumed["stopped"], resumed["cycles"], resumed["open_sessions"]) == (None, 2, 0)
    assert resumed["adapter_sha256"] == never["adapter_sha256"]
