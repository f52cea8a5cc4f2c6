"""A flow of somebody's own that calls training flows: its Retry adopts what is finished and goes on where it failed."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from flow_probes import POLICY, descendants, ended, ledger, lose_answer, retry, sessions_of
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import StateType
from prefect.states import Pending
from tiny_configs import tiny_config

from flows.closing import credentials_blocks
from gateway.launch import GatewayProcess
from whitney.labels import ROOT_ATTEMPT, ROOT_FLOW_RUN

DOCS = Path(__file__).resolve().parents[2] / "docs" / "reliability.md"


def chain_of_the_docs(folder: Path) -> Any:
    """The flow in docs/reliability.md, as a file of somebody's own would have it."""
    (code,) = (
        block for block in re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.S) if "@composite_flow" in block
    )
    path = folder / "own_chain.py"
    path.write_text(code)
    spec = importlib.util.spec_from_file_location("own_chain", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["own_chain"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.teach_then_reinforce


async def test_the_flow_of_the_docs_goes_on_in_the_stage_that_failed_at_the_block_that_failed(
    local: GatewayProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = chain_of_the_docs(tmp_path)
    sft = tiny_config("sft", tmp_path, cycles=1)
    rl = tiny_config("grpo", tmp_path, save_every=1, cycles=3)
    parameters = {"sft": sft.model_dump(mode="json"), "rl": rl.model_dump(mode="json")}
    async with get_client() as api:
        flow_run = await api.create_flow_run(flow, parameters=parameters, state=Pending())
    mend = lose_answer(monkeypatch, "save_state", 3)  # one of sft, the second of grpo
    assert (await ended(flow, flow_run)).type == StateType.FAILED
    mend()
    assert (await retry(flow, flow_run.id)).type == StateType.COMPLETED

    stages = {run.name: run for run in await descendants(flow_run.id) if run.name.startswith("tiny-")}
    assert {name: run.run_count for name, run in stages.items()} == {"tiny-sft": 1, "tiny-grpo": 2}
    assert ledger(local, stages["tiny-sft"].id, 2) == {}
    saved = [ledger(local, stages["tiny-grpo"].id, attempt)[POLICY]["save_state"] for attempt in (1, 2)]
    assert saved == [2, 2], "the block whose answer was lost is the one that is done again"
    sessions = await sessions_of(stages["tiny-grpo"].id)
    assert Counter(session.status for session in sessions) == Counter(closed=2)
    assert {session.labels[ROOT_FLOW_RUN] for session in sessions} == {str(flow_run.id)}
    assert sorted(session.labels[ROOT_ATTEMPT] for session in sessions) == ["1", "2"]


def test_credentials_are_found_wherever_the_parameters_name_them() -> None:
    stages = [{"credentials_block": "b"}, {"config": {"credentials_block": None}}, "credentials_block"]
    assert credentials_blocks({"config": {"credentials_block": "a", "stages": stages}}) == {"a", "b"}
    assert credentials_blocks({"config": {"credentials_block": None}}) == set()
