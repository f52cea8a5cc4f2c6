"""A pipeline's budget spans its stages; what it stops goes on, with a higher one, as if it had not been stopped."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from flow_probes import all_sessions, descendants, first_attempt, ledger, page_of, retry
from prefect.client.orchestration import get_client
from served import until
from test_budget_pause import answer, asked
from tiny_configs import MIXED
from tiny_pipelines import pipeline_config

import flows
import flows.person
from flows.config import ConfigError
from flows.durable import stopwatch
from gateway.launch import GatewayProcess
from tasks.events import Event, listening

SHARED = {"save_every": 1, "cycles": 2, "optimizer": {"learning_rate": 2e-3}, "evaluation": {"enabled": False}}
SFT = {"algorithm": "sft", "config": {"batch_size": 4, "cycles": 1}}
RL = {"name": "rl", "algorithm": "grpo", "config": {"groups_per_cycle": 2, "group_size": 4, "rewards": MIXED}}
OF_SFT, OF_DRAWING, OF_A_BLOCK = 4, 3, 6
"""Operations: forward_backward, optim_step, save_state, export_lora; a snapshot, 2 sample; these, a step, a state."""


def chain(folder: Path, limit: int | None, name: str, field: str = "max_operations") -> Any:
    (folder / "prices.toml").write_text('currency = "EUR"\n[operations]\nforward_backward = 0.5\n')
    budget = {} if limit is None else {field: limit, "prices": str(folder / "prices.toml")}
    return pipeline_config(folder, SFT, RL, shared=SHARED, name=name, budget=budget)


async def billed(gateway: GatewayProcess, flow_run_id: Any, attempts: int) -> int:
    """What the ledger has of all stages."""
    stages = [run.id for run in await descendants(flow_run_id)]
    parts = (ledger(gateway, one, attempt).values() for one in stages for attempt in range(1, attempts + 1))
    return sum((usage for part in parts for usage in part), Counter[str]()).total()


async def test_each_raise_of_a_pipelines_limit_brings_it_further_and_the_end_is_that_of_one_without(
    local: GatewayProcess, tmp_path: Path
) -> None:
    never = await flows.pipeline(chain(tmp_path, None, "never-stopped"))
    assert never["budget"] is None

    before_rl = OF_SFT + OF_A_BLOCK  # no room for the export that would end it
    flow_run_id, state = await first_attempt(flows.pipeline, chain(tmp_path, before_rl, "chain"))
    summary = await state.result()
    assert state.is_completed()
    assert [stage["stage"] for stage in summary["stages"]] == ["sft"]
    assert summary["stopped"].startswith(f"budget.max_operations = {before_rl}: {OF_SFT} used; stage rl may need")
    assert summary["budget"]["left_out"] == ["stage rl"]
    assert summary["budget"]["go_on_with"] == sum(never["operations"].values())
    assert await billed(local, flow_run_id, 1) == OF_SFT
    half = dict.fromkeys(("least", "typical", "most"), 0.5)
    assert summary["cost"] == {"currency": "EUR", "billed": 0.5, "planned": half}
    page = await page_of(flow_run_id)
    why = summary["stopped"]
    assert page.startswith(f"# chain\n\n**Stopped early**: {why}\n\n- left out: stage rl\n- to go on: `whitney run ")
    assert "| 2 rl | grpo | **not begun**: budget.max_operations is reached |" in page
    assert f"- Billed: {OF_SFT} operations; " in page
    assert "- Cost: 0.50 EUR billed; planned for the stages that have begun: typically 0.50, at most 0.50" in page
    assert state.message == f"stopped early: {why}"

    async def with_limit(limit: int | None, field: str = "max_operations") -> dict[str, Any]:
        config = chain(tmp_path, limit, "chain", field).model_dump(mode="json")
        async with get_client() as api:
            await api.update_flow_run(flow_run_id, parameters={"config": config})
        return await (await retry(flows.pipeline, flow_run_id)).result()

    drawn = 2 * 22 + 2 * 4 * 6  # prompts, and completions at their longest: they fit, and to train on them does not
    of_sft = sum(summary["stages"][0]["tokens"].values())
    summary = await with_limit(of_sft + drawn, "max_tokens")
    assert summary["stopped"].startswith(f"budget.max_tokens = {of_sft + drawn}: ")
    assert "; forward_backward may need" in summary["stopped"]
    assert ([stage["stage"] for stage in summary["stages"]], summary["open_sessions"]) == (["sft"], 0)
    assert summary["budget"]["left_out"] == ["stage rl"]

    within_rl = OF_SFT + OF_DRAWING + OF_A_BLOCK + 1
    summary = await with_limit(within_rl)
    assert [(stage["stage"], stage["cycles"]) for stage in summary["stages"]] == [("sft", 1), ("rl", 1)]
    assert summary["budget"]["reached"] == "budget.max_operations"
    assert summary["budget"]["left_out"] == ["stage rl"], "it is not finished"
    assert summary["open_sessions"] == 0
    assert await billed(local, flow_run_id, 3) == within_rl

    summary = await with_limit(None)
    assert (summary["stopped"], summary["open_sessions"]) == (None, 0)
    assert [(stage["stage"], stage["cycles"]) for stage in summary["stages"]] == [("sft", 1), ("rl", 2)]
    assert summary["adapter_sha256"] == never["adapter_sha256"]


MEASURED = {"algorithm": "grpo", "config": {**RL["config"], "evaluation": {"max_prompts": 2, "samples": 2}}}  # type: ignore[dict-item]
LEAST = 2 + OF_A_BLOCK + 1
"""2 sample, of the snapshot that the first block draws from; the block; the export."""


@pytest.mark.parametrize("field", ["max_operations", "max_operations_per_month"])
@pytest.mark.parametrize("limit", [3, LEAST - 1])
async def test_a_limit_that_leaves_no_adapter_of_the_first_stage_is_refused_with_the_least_that_does(
    local: GatewayProcess, tmp_path: Path, limit: int, field: str
) -> None:
    budget = {field: limit, "project": f"project-{uuid4().hex[:8]}"}
    before = await all_sessions()
    with pytest.raises(ConfigError) as refused:
        await flows.pipeline(pipeline_config(tmp_path, MEASURED, shared={"save_every": 1}, name="r", budget=budget))
    assert str(refused.value).startswith(
        f"budget.{field} = {limit}: 0 used, and the first stage needs {LEAST} more to leave an adapter. Set it to "
        f"{LEAST} or more"
    )
    assert not (tmp_path / "r").exists()
    assert await all_sessions() == before


async def test_a_later_stages_own_limit_that_leaves_no_adapter_is_refused_before_the_first_stage_is_paid_for(
    local: GatewayProcess, tmp_path: Path
) -> None:
    limited = {**RL, "config": {**RL["config"], "budget": {"max_operations": 2}}}  # type: ignore[dict-item]
    with pytest.raises(ConfigError, match=r"stage 'rl': budget\.max_operations = 2: "):
        await flows.pipeline(pipeline_config(tmp_path, SFT, limited, shared=SHARED, name="r"))
    assert not (tmp_path / "r").exists()


async def test_a_stages_own_limit_ends_the_stage_and_the_pipeline_goes_on_from_there(
    local: GatewayProcess, tmp_path: Path
) -> None:
    limited = {**SFT, "config": {**SFT["config"], "cycles": 2, "budget": {"max_operations": 6}}}  # type: ignore[dict-item]
    summary = await flows.pipeline(pipeline_config(tmp_path, limited, RL, shared={**SHARED, "cycles": 1}))
    assert summary["stopped"] is None
    assert [(stage["stage"], stage["cycles"]) for stage in summary["stages"]] == [("sft", 1), ("rl", 1)]


async def test_a_pipeline_asks_for_each_limit_that_is_too_low_and_offers_what_all_its_stages_need(
    local: GatewayProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flows.person, "LOOK_EVERY_S", 0.1)
    month = {"project": f"project-{uuid4().hex[:8]}", "max_operations_per_month": OF_SFT + 1}
    budget = {"max_operations": OF_SFT + OF_A_BLOCK, "on_exceed": "pause", "max_minutes": 59, **month}
    last = {"name": "last", "algorithm": "sft", "config": {**SFT["config"], "cycles": 2}}  # type: ignore[dict-item]
    heard: list[Event] = []
    with listening(heard.append):
        config = pipeline_config(tmp_path, SFT, RL, last, shared=SHARED, budget=budget)
        training = asyncio.create_task(flows.pipeline(config))
        flow_run_id = await asked(heard, training)
        clock = SimpleNamespace(monotonic=lambda: time.monotonic() + 3600)
        monkeypatch.setattr(stopwatch, "time", clock)
        await answer(flow_run_id, go_on=True)
        await until(lambda: _twice(heard), "the second question")
        await answer(await asked(heard, training), go_on=True)
        summary = await training
    assert [event.facts["key"] for event in heard if event.kind == "paused"] == [
        f"pipeline-budget-max-operations-{OF_SFT + OF_A_BLOCK}",
        f"pipeline-budget-max-operations-per-month-{OF_SFT + 1}",
    ]
    operations = OF_SFT + 2 * OF_A_BLOCK + 1 + 2 * 3 + 1
    assert (summary["stopped"], [stage["cycles"] for stage in summary["stages"]]) == (None, [1, 2, 2])
    used = summary["budget"]["used"]
    assert used["budget.max_operations"] == {"limit": operations, "used": operations}
    assert used["budget.max_operations_per_month"] == {"limit": operations, "used": operations}
    assert used["budget.max_minutes"]["used"] < 1, "a person's hour is not at work"


async def _twice(heard: list[Event]) -> bool | None:
    return [event.kind for event in heard].count("paused") == 2 or None
