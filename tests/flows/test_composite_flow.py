"""A flow of somebody's own that calls training flows: its Retry adopts what is finished and goes on where it failed."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import uuid4

import pytest
from flow_probes import POLICY, descendants, ended, ledger, lose_answer, retry, sessions_of
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.states import Crashed, Pending
from prefect.tasks import Task
from tiny_configs import tiny_config

from flows import FLOWS
from flows.hooks import close_sessions_of_tree, credentials_blocks
from flows.lifecycle import block_flow
from gateway.launch import GatewayProcess
from whitney.client import WhitneyClient
from whitney.labels import ROOT_ATTEMPT, ROOT_FLOW_RUN
from whitney.settings import WhitneySettings

DOCS = Path(__file__).resolve().parents[2] / "docs" / "reliability.md"


def module_of(code: str, folder: Path) -> ModuleType:
    """A file of somebody's own, imported; again, where it has changed."""
    path = folder / "own_chain.py"
    path.write_text(code)
    spec = importlib.util.spec_from_file_location("own_chain", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["own_chain"] = importlib.util.module_from_spec(spec)
    exec(compile(code, path, "exec", dont_inherit=True), module.__dict__)
    return module


def chain_of_the_docs(folder: Path) -> Any:
    """The flow in docs/reliability.md, as a file of somebody's own would have it."""
    (code,) = (
        block for block in re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.S) if "@composite_flow" in block
    )
    return module_of(code, folder).teach_then_reinforce


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
    assert credentials_blocks({"config": {"credentials_block": "a", "stages": stages}}) == {"a", "b", None}
    assert credentials_blocks({"config": {"credentials_block": "a", "stages": []}, "outcomes": [{}]}) == {"a"}
    assert credentials_blocks({"sft": {"credentials_block": "a"}, "rl": {"cycles": 1}}) == {"a", None}
    assert credentials_blocks({"config": {"credentials_block": None}}) == credentials_blocks({}) == {None}


async def test_a_block_that_cannot_be_loaded_keeps_no_other_endpoints_sessions_open(local: GatewayProcess) -> None:
    parameters = {"sft": {"credentials_block": "was-deleted"}, "rl": {"cycles": 1}}
    flow_run = FlowRun(id=uuid4(), flow_id=uuid4(), parameters=parameters, run_count=1, state=Crashed())
    async with WhitneyClient(WhitneySettings()) as client:
        labels = {ROOT_FLOW_RUN: str(flow_run.id), ROOT_ATTEMPT: "1"}
        session = await client.create_session(create_key=f"left:{flow_run.id}", labels=labels)
        with pytest.raises(ExceptionGroup, match="may be open") as raised:
            close_sessions_of_tree(FLOWS["sft"], flow_run, Crashed())
        assert "was-deleted" in str(raised.value.exceptions[0])
        assert (await client.get_session(session.session_id)).status == "closed"


NESTED = """
from typing import Any
from uuid import uuid4

import flows
from flows.config import GrpoConfig, SftConfig
from flows.lifecycle import composite_flow


@composite_flow("inner-stages")
async def inner(sft: SftConfig) -> dict[str, Any]:
    return await flows.sft(sft)


@composite_flow("outer-stages")
async def outer(sft: SftConfig, rl: GrpoConfig) -> dict[str, Any]:
    await inner(sft)
    return await flows.grpo(rl)
"""


async def test_stages_of_stages_are_adopted_by_whatever_code_has_become_of_the_flows(
    local: GatewayProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = module_of(NESTED, tmp_path).outer
    sft = tiny_config("sft", tmp_path, save_every=1, cycles=2)
    rl = tiny_config("grpo", tmp_path, save_every=1, cycles=1)
    parameters = {"sft": sft.model_dump(mode="json"), "rl": rl.model_dump(mode="json")}
    async with get_client() as api:
        flow_run = await api.create_flow_run(flow, parameters=parameters, state=Pending())
    mend = lose_answer(monkeypatch, "save_state", 2)  # the inner flow's stage fails at its second block
    assert (await ended(flow, flow_run)).type == StateType.FAILED
    mend()
    updated = module_of("# a comment that moves every line\n" * 3 + NESTED, tmp_path).outer
    assert (await retry(updated, flow_run.id)).type == StateType.COMPLETED
    assert (await retry(updated, flow_run.id)).type == StateType.COMPLETED, "nothing is left to do"

    runs = [run for run in await descendants(flow_run.id) if run.name.startswith("tiny-")]
    assert sorted(run.name for run in runs) == ["tiny-grpo", "tiny-sft"], "each stage is one flow run"
    stages = {run.name: run for run in runs}
    saved = [ledger(local, stages["tiny-sft"].id, attempt).get(POLICY, {}).get("save_state") for attempt in (1, 2, 3)]
    assert saved == [2, 1, None], "its first block is adopted; the one whose answer was lost is done again"
    assert ledger(local, stages["tiny-grpo"].id, 2) == {}


def test_a_retry_knows_a_subflow_by_its_flows_name_and_not_by_its_code() -> None:
    def flow_at(line: int) -> Any:
        text = "async def work(block):\n    return block\n"
        names: dict[str, Any] = {}
        exec(compile("\n" * line + text, "somewhere.py", "exec"), names)
        return block_flow("some-cycles")(names["work"])

    keys = {Task(name=flow.name, fn=flow.fn).task_key for flow in (flow_at(0), flow_at(7))}
    assert len(keys) == 1
    assert len({Task(name=flow.name, fn=flow.fn).task_key for flow in FLOWS.values()}) == len(FLOWS)
