"""A pipeline on the tiny model, in one process: hand-off, gates, recorded outcomes, and what is refused beforehand."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, Mock
from uuid import uuid4

import httpx
import pytest
from flow_probes import (
    all_sessions,
    descendants,
    ended,
    first_attempt,
    ledger,
    lines,
    lose_answer,
    page_of,
    retry,
    sessions_of,
)
from prefect.artifacts import Artifact
from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey
from prefect.client.schemas.objects import StateType
from prefect.exceptions import Pause
from prefect.states import Pending
from served import read
from tiny_pipelines import OPD, RL, SFT, pipeline_config

import flows
from flows.config import ConfigError
from flows.stages.outcome import StageOutcome
from flows.stages.record import record, require_same_stages
from gateway.launch import GatewayProcess
from tasks.events import Event, listening
from tasks.run_folder import RunFolder
from whitney.client import WhitneyClient
from whitney.errors import GoneError
from whitney.settings import WhitneySettings

# A step in one block; its loss is measured, and nothing sampled.
QUICK: dict[str, Any] = {"batch_size": 2, "cycles": 1}
LOSS_ONLY = {"evaluation": {"samples": 1, "max_prompts": 1}, "sampling": {"max_tokens": 1}}


def quick(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "algorithm": "sft", "config": QUICK, **fields}


def outcomes_in(folder: Path) -> list[StageOutcome]:
    return [StageOutcome.model_validate(row) for row in lines(folder / "stages.jsonl")]


async def deployed(folder: Path, config: Any) -> Any:
    """A flow run of a deployment, for this process to run as a worker's would."""
    async with get_client() as api:
        flow_id = await api.create_flow(flows.pipeline)
        deployment = await api.create_deployment(
            flow_id=flow_id, name=folder.name, entrypoint="flows/pipeline.py:pipeline"
        )
        parameters = {"config": config.model_dump(mode="json")}
        return await api.create_flow_run_from_deployment(deployment, parameters=parameters, state=Pending())


def create_run_requests(patch: pytest.MonkeyPatch) -> list[Any]:
    """Every run that is asked for from now on."""
    asked: list[Any] = []
    real = WhitneyClient.create_run

    async def create_run(self: WhitneyClient, session_id: str, request: Any) -> Any:
        asked.append(request)
        return await real(self, session_id, request)

    patch.setattr(WhitneyClient, "create_run", create_run)
    return asked


async def test_three_stages_hand_on_weights_and_a_teacher(
    local: GatewayProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, events = create_run_requests(monkeypatch), list[Event]()
    with listening(events.append):
        summary = await flows.pipeline(pipeline_config(tmp_path))
    sft, rl, opd = outcomes_in(tmp_path / "chain")
    # The policy of each stage, and the teacher of the last.
    initial = [(one.lora.rank, one.initial and one.initial.state_id, one.with_optimizer) for one in asked]
    assert initial == [(8, None, False), (8, sft.state_id, False), (4, None, False), (8, rl.state_id, False)]
    assert [stage["stage"] for stage in summary["stages"]] == ["sft", "rl", "opd"]
    assert (summary["adapter_sha256"], summary["state_id"]) == (opd.adapter_sha256, opd.state_id)
    assert json.loads((tmp_path / "chain" / "summary.json").read_text()) == summary
    for number, outcome in enumerate((sft, rl, opd), 1):
        assert Path(outcome.run_folder) == tmp_path / "chain" / f"{number}-{outcome.stage}"
        assert Path(outcome.adapter, "adapter_model.safetensors").is_file()
        assert sum(ledger(local, outcome.flow_run_id).values(), Counter()) == outcome.operations
    assert summary["operations"]["optim_step"] == sum(one.operations["optim_step"] for one in (sft, rl, opd))
    assert (summary["open_sessions"], summary["redone"]["operations"]) == (0, 0)
    told = [event.kind for event in events if event.kind in ("pipeline", "stage", "stage_done", "gate")]
    assert told == ["pipeline", *["stage", "stage_done"] * 3]
    page = await page_of(summary["flow_run_id"])
    for number, outcome in enumerate((sft, rl, opd), 1):
        assert f"| {number} [{outcome.stage}](" in page, "a link to its own page, which none has before it is trained"
    assert page.count("data:image/svg+xml") == 1
    planned, billed = summary["planned"], summary["operations"] | summary["tokens"]
    for kind, span in (planned["operations"] | planned["tokens"]).items():
        assert f"| {kind} | {span['typical']:,.0f} | {span['most']:,.0f} | {billed.get(kind, 0):,} |" in page
    assert planned["operations"]["export_lora"]["typical"] == billed["export_lora"] == 3, "an adapter a stage"


async def test_a_stage_may_go_on_with_the_optimizer_of_the_one_before(
    local: GatewayProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = create_run_requests(monkeypatch)
    stages = [quick("a"), quick("b", start_from="state")]
    a, b = (await flows.pipeline(pipeline_config(tmp_path, *stages, shared=LOSS_ONLY)))["stages"]
    assert [one.with_optimizer for one in asked] == [False, True]
    assert asked[1].initial.state_id == a["state_id"]
    assert a["adapter_sha256"] != b["adapter_sha256"]


PAGES = ("chain-pipeline", "1-a-report", "1-a-progress")


def delete_pages(event: Event) -> None:
    """As somebody may in the UI, once the first stage has saved its block."""
    if event.kind == "block_saved":
        with get_client(sync_client=True) as api:
            for page in api.read_artifacts(artifact_filter=ArtifactFilter(key=ArtifactFilterKey(any_=list(PAGES)))):
                api.delete_artifact(page.id)


async def test_a_gate_stops_a_pipeline_or_warns_and_recorded_stages_are_started_after(
    local: GatewayProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = "eval.loss < 0.1 * a.before.loss"
    stages = [quick("a", require="eval.loss < 0", on_fail="continue"), quick("b", require=never), quick("c")]
    with listening(delete_pages):
        flow_run_id, state = await first_attempt(flows.pipeline, pipeline_config(tmp_path, *stages, shared=LOSS_ONLY))
    assert state.type == StateType.FAILED
    assert "GateError: gate of stage 'b', eval.loss < 0.1 * a.before.loss: eval.loss = " in str(state.message)
    a, b = recorded = outcomes_in(tmp_path / "chain")
    assert a.gate is not None
    assert (a.gate.passed, a.gate.on_fail) == (False, "continue")
    page = await page_of(flow_run_id)
    assert "| **failed** (continue) |" in page
    assert "| **failed** (stop) |" in page
    assert f"- gate of b, `{never}`: eval.loss = " in page
    assert "| 3 c | sft | – |" in page

    sessions = await all_sessions()
    with monkeypatch.context() as patch:

        def lose_prefect(event: Event) -> None:
            if event.kind == "gate" and event.facts["stage"] == "b":
                patch.setattr(PrefectClient, "update_artifact", AsyncMock(side_effect=httpx.ConnectError("away")))

        with listening(lose_prefect):
            again = await retry(flows.pipeline, flow_run_id)
    assert "GateError: gate of stage 'b'" in str(again.message), "what is finished is measured as it was"
    assert await all_sessions() == sessions

    stages[1]["require"] = "eval.loss > 0"
    longer = pipeline_config(tmp_path, *stages, name="from-c", shared=LOSS_ONLY)
    summary = await flows.pipeline(longer, recorded)
    assert [stage["flow_run_id"] for stage in summary["stages"][:2]] == [a.flow_run_id, b.flow_run_id]
    assert [run.name for run in await descendants(summary["flow_run_id"]) if run.name[1] == "-"] == ["3-c"]
    assert summary["operations"] == summary["stages"][2]["operations"], "the others are on the other run's bill"
    assert summary["gates"]["b"]["passed"]

    sessions = await all_sessions()
    other = pipeline_config(tmp_path, quick("a", config={**QUICK, "cycles": 2}), *stages[1:], shared=LOSS_ONLY)
    with pytest.raises(ConfigError, match="stage 'a' was recorded with another configuration"):
        await flows.pipeline(other, recorded)
    with pytest.raises(ConfigError, match="recorded outcomes of b: must be of the first stages of a, b, c"):
        await flows.pipeline(longer, [b])
    with pytest.raises(ConfigError, match="stage 'b' was recorded on other data"):
        await flows.pipeline(longer, [a, b.model_copy(update={"data_fingerprint": "another"})])
    gone = b.model_copy(update={"state_id": "st_gone"})
    with pytest.raises(
        ConfigError,
        match=r"stage 'c' needs state st_gone of stage 'b', which this endpoint does not have: .*PIPELINE --from b`",
    ):
        await flows.pipeline(longer, [a, gone])
    assert await all_sessions() == sessions


async def test_a_person_is_asked_before_a_large_pipeline_and_at_a_gate_and_resume_trains_what_remains_only(
    local: GatewayProcess, tmp_path: Path
) -> None:
    stages = [quick("a", require="eval.loss < 0", on_fail="pause"), quick("b")]
    large = pipeline_config(tmp_path, *stages, shared=LOSS_ONLY, approval={"above_operations": 0})
    flow_run, sessions = await deployed(tmp_path, large), await all_sessions()
    with pytest.raises(Pause):
        await ended(flows.pipeline, flow_run)
    assert (await read(flow_run.id)).state_name == "Suspended"
    assert (await all_sessions(), list(tmp_path.iterdir())) == (sessions, [])
    async with get_client() as api:
        await api.resume_flow_run(flow_run.id, run_input={"go_on": True})
    with pytest.raises(Pause):
        await ended(flows.pipeline, await read(flow_run.id))
    assert (await read(flow_run.id)).state_name == "Suspended"
    (a,) = outcomes_in(tmp_path / "chain")
    assert all(session.status == "closed" for session in await sessions_of(a.flow_run_id)), "nobody pays for waiting"
    async with get_client() as api:
        await api.resume_flow_run(flow_run.id, run_input={"go_on": True})
    state = await ended(flows.pipeline, await read(flow_run.id))
    assert state.type == StateType.COMPLETED
    first, second = outcomes_in(tmp_path / "chain")
    assert (first.flow_run_id, second.stage) == (a.flow_run_id, "b")
    assert len(await sessions_of(a.flow_run_id)) == 1

    # Of a finished pipeline nothing is left to be done.
    sessions = await all_sessions()
    assert (await retry(flows.pipeline, flow_run.id)).type == StateType.COMPLETED
    stages[0]["require"] = "eval.loss < 0.01"
    async with get_client() as api:
        changed = pipeline_config(tmp_path, *stages, shared=LOSS_ONLY).model_dump(mode="json")
        await api.update_flow_run(flow_run.id, parameters={"config": changed})
    with pytest.raises(Pause):  # another question than the one that was answered
        await retry(flows.pipeline, flow_run.id)
    assert await all_sessions() == sessions


async def test_a_retry_needs_of_the_stages_before_only_what_it_still_reads(
    local: GatewayProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages = [quick("a"), quick("b", config={**QUICK, "cycles": 2})]
    mend = lose_answer(monkeypatch, "save_state", 2)
    flow_run_id, _ = await first_attempt(flows.pipeline, pipeline_config(tmp_path, *stages, shared=LOSS_ONLY))
    mend()
    (a,), sessions = outcomes_in(tmp_path / "chain"), await all_sessions()
    with monkeypatch.context() as patch:
        patch.setattr(WhitneyClient, "get_state", gone)
        refused = await retry(flows.pipeline, flow_run_id)
    told = f"stage 'b' needs state {a.state_id} of stage 'a', which is gone: it was deleted. Train 'a' again"
    assert told in str(refused.message)
    assert await all_sessions() == sessions

    mend = lose_answer(monkeypatch, "save_state", 2)  # b has saved a block by then
    assert (await retry(flows.pipeline, flow_run_id)).type == StateType.FAILED
    mend()
    async with WhitneyClient(WhitneySettings()) as client:
        await client.delete_state(a.state_id)
    shutil.rmtree(a.adapter)
    warned = list[str]()
    with listening(lambda event: warned.append(str(event.facts["message"])) if event.kind == "warning" else None):
        assert (await retry(flows.pipeline, flow_run_id)).type == StateType.COMPLETED
    assert any(f"stage 'a': its adapter {a.adapter} is not there any more" in one for one in warned)
    assert f"- a: adapter `{a.adapter}` (gone)" in await page_of(flow_run_id)


async def gone(_: WhitneyClient, state_id: str) -> Any:
    raise GoneError("it was deleted", status=410, code="state_expired")


@pytest.mark.parametrize(
    ("stage", "told"),
    [
        ({**OPD, "config": {**OPD["config"], "data": {"source": "missing.jsonl"}}}, "stage 'opd': .*missing.jsonl"),
        ({**OPD, "config": {**OPD["config"], "lora": {"rank": 999}}}, "stage 'opd': lora.rank = 999"),
        ({**OPD, "teacher_from": None}, "stage 'opd': teacher: the student already is what the teacher is"),
        (
            {**OPD, "teacher_from": None, "config": {**OPD["config"], "teacher": {"state_id": "st_none"}}},
            "stage 'opd': teacher.state_id = 'st_none'",
        ),
        (
            {
                **quick("last"),
                "require": "eval.loss < 1",
                "config": {**QUICK, "data": {"source": "own.jsonl", "heldout_fraction": 0}},
            },
            "stage 'last': require = 'eval.loss < 1': eval.loss is not measured, for own.jsonl holds no example out",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_mistake_in_the_last_stage_is_told_before_the_first_one_allocates_anything(
    local: GatewayProcess, tmp_path: Path, stage: dict[str, Any], told: str
) -> None:
    rows = [{"prompt": f"{number} + 1 =", "answer": str(number + 1)} for number in range(3)]
    (tmp_path / "own.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    sessions = await all_sessions()
    with pytest.raises(ValueError, match=told):
        await flows.pipeline(pipeline_config(tmp_path, SFT, RL, stage))
    assert await all_sessions() == sessions
    assert not (tmp_path / "chain").exists()


def test_a_pipeline_that_goes_on_is_the_one_that_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def go_on(*stages: dict[str, Any], finished: tuple[str, ...] = ("a",)) -> None:
        require_same_stages(before, record(pipeline_config(tmp_path, *stages)), finished)

    slower = {**QUICK, "optimizer": {"learning_rate": 1e-3}}
    before = record(pipeline_config(tmp_path, quick("a"), quick("b")))
    go_on(quick("a", require="eval.loss < 3"), quick("b"))
    with pytest.raises(
        ConfigError, match=r"'a' is finished, and its configuration.*\n  optimizer.learning_rate: 0.02 → 0.001"
    ):
        go_on(quick("a", config=slower), quick("b"))
    for changed in ((quick("a"), quick("b", config=slower)), (quick("a"), quick("b"), quick("c"))):
        with pytest.raises(ConfigError, match="--allow-drift"):
            go_on(*changed)
    monkeypatch.setenv("WHITNEY_ALLOW_DRIFT", "1")
    go_on(quick("a"), quick("b", config=slower))
    go_on(quick("a"), quick("b"), quick("c"))
    with pytest.raises(ConfigError, match="'a' is finished"):
        go_on(quick("a", config=slower), quick("b"))
    with pytest.raises(ConfigError, match="finished stages cannot be moved or taken away: a must come first"):
        go_on(quick("b"), quick("a"))


async def test_a_stages_result_that_is_anothers_is_not_taken(
    local: GatewayProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed = {"algorithm": "sft", "run_folder": "runs/chain/2-b", "flow_run_id": str(uuid4())}

    async def mistaken(_: Any) -> dict[str, Any]:
        return handed

    monkeypatch.setitem(flows.FLOWS, "sft", mistaken)
    config = pipeline_config(tmp_path, quick("a"), quick("b"), shared=LOSS_ONLY)
    with pytest.raises(RuntimeError, match=r"stage 'a' was handed the result of sft in .*2-b"):
        await flows.pipeline(config)


async def test_a_pipeline_whose_page_cannot_be_made_lets_go_of_its_folder(
    local: GatewayProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Artifact, "acreate", AsyncMock(side_effect=httpx.ConnectError("away")))
    with pytest.raises(httpx.ConnectError) as kept:  # what the error refers to is not collected meanwhile
        await flows.pipeline(pipeline_config(tmp_path, quick("a"), shared=LOSS_ONLY))
    RunFolder(tmp_path / "chain", "").lock().acquire(timeout=0)
    assert str(kept.value) == "away"


async def test_a_full_disk_is_told_as_the_folder_that_was_asked_for(
    local: GatewayProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "config.json")
    monkeypatch.setattr(RunFolder, "write_config", Mock(side_effect=full))
    with pytest.raises(ConfigError, match=r"output_dir = '.*' cannot be written to: .* No space left on device"):
        await flows.pipeline(pipeline_config(tmp_path, quick("a"), shared=LOSS_ONLY))
