"""What a Retry does before it trains: earlier attempts, what has changed, and states that are lost."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock
from uuid import UUID

import pytest
from flow_probes import descendants, ended, first_attempt, ledger, lines, lose_answer, retry, sessions_of
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId, ArtifactFilterKey
from prefect.deployments.runner import RunnerDeployment
from prefect.exceptions import Pause
from prefect.flow_runs import suspend_flow_run
from prefect.states import Cancelling, Failed
from tiny_configs import grpo_config, sft_config

import flows
from flows.checks.drift import ALLOW_DRIFT
from flows.config import ConfigError, GrpoConfig
from flows.durable.lost_states import Left
from gateway.launch import GatewayProcess
from gateway.storage import DataDirectory
from tasks.events import Event, listening
from tasks.run_folder import RunFolder
from tasks.verdicts import KEY
from whitney.client import WhitneyClient
from whitney.errors import WhitneyError
from whitney.labels import ATTEMPT, CREATE_KEY, FLOW_RUN
from whitney.settings import WhitneySettings

MEASURES_NOTHING = {"evaluation": {"enabled": False}}


def config_of(folder: Path, **fields: Any) -> GrpoConfig:
    return grpo_config(folder, **{"save_every": 1, "cycles": 4, **MEASURES_NOTHING, **fields})


def states_of(folder: Path) -> list[dict[str, Any]]:
    return lines(folder / "tiny-grpo" / "states.jsonl")


async def fails_in_cycle_four(folder: Path, patch: pytest.MonkeyPatch, **fields: Any) -> UUID:
    """A run with three finished blocks; its connection is mended again."""
    mend = lose_answer(patch, "save_state", 4)
    flow_run_id, state = await first_attempt(flows.grpo, config_of(folder, **fields))
    mend()
    assert state.is_failed()
    return flow_run_id


async def undisturbed(folder: Path, **fields: Any) -> str:
    summary = await flows.grpo(config_of(folder, name="undisturbed", **fields))
    return str(summary["adapter_sha256"])


async def test_the_newest_complete_state_is_gone_on_from_and_the_skipped_one_is_named(
    local: GatewayProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    flow_run_id = await fails_in_cycle_four(tmp_path, monkeypatch)
    before = states_of(tmp_path)
    file = DataDirectory(local.data_dir).file("state", before[-1]["state_id"])
    file.write_bytes(file.read_bytes()[:1000])
    heard: list[Event] = []
    with caplog.at_level(logging.WARNING), listening(heard.append):
        state = await retry(flows.grpo, flow_run_id)
    assert state.is_completed()
    assert f"state {before[-1]['state_id']} of cycle 3 is not complete" in caplog.text
    going_on = f"going on from state {before[-2]['state_id']} of cycle 2; 1 finished block is trained again"
    assert going_on in caplog.text
    assert going_on in [event.facts["message"] for event in heard if event.kind == "warning"], "the terminal shows it"
    after = states_of(tmp_path)
    assert [(one["block"], one["attempt"]) for one in after] == [(0, 1), (1, 1), (2, 2), (3, 2)]
    assert [one["parent_state_id"] for one in after] == [None, *(one["state_id"] for one in after[:-1])]
    assert ledger(local, flow_run_id, 2)["policy"]["save_state"] == 2
    summary = await state.result()
    assert summary["adapter_sha256"] == await undisturbed(tmp_path)
    # Cycle 3 was trained twice; the save of cycle 4 was executed, and only its answer was lost.
    assert summary["redone"]["by_kind"]["save_state"] == 2
    assert list(summary["redone"]["by_attempt"]) == ["1"]


async def test_a_state_whose_bytes_have_changed_is_not_gone_on_from_either(
    local: GatewayProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow_run_id = await fails_in_cycle_four(tmp_path, monkeypatch)
    file = DataDirectory(local.data_dir).file("state", states_of(tmp_path)[-1]["state_id"])
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    assert (await retry(flows.grpo, flow_run_id)).is_completed()
    assert [one["attempt"] for one in states_of(tmp_path)] == [1, 1, 2, 2]


async def test_a_retry_whose_states_are_all_gone_says_so_and_what_to_do(
    local: GatewayProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow_run_id = await fails_in_cycle_four(tmp_path, monkeypatch)
    async with WhitneyClient(WhitneySettings()) as client:
        for row in states_of(tmp_path):
            await client.delete_state(row["state_id"])
    state = await retry(flows.grpo, flow_run_id)
    with pytest.raises(ConfigError, match=r"nothing left to go on from\. State \w+ of cycle 3 is gone.*keep_states"):
        await state.result()
    assert len(await sessions_of(flow_run_id)) == 1  # nothing was allocated


async def test_a_block_that_was_left_cancelling_is_trained_again_with_all_that_was_made_of_it(
    local: GatewayProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loss_only = {"evaluation": {"samples": 1, "max_prompts": 1}, "sampling": {"max_tokens": 1}}
    config = sft_config(tmp_path, cycles=3, save_every=1, batch_size=2, **loss_only)
    flow_run_id, _ = await first_attempt(flows.sft, config)
    (second,) = (run for run in await descendants(flow_run_id) if run.name == "cycle 2")
    async with get_client() as api:
        await api.set_flow_run_state(second.id, Cancelling(), force=True)  # Prefect did not answer as it returned
        await api.set_flow_run_state(flow_run_id, Failed(), force=True)
    # An older version has trained it again beneath what was made of its former state, and could not go on.
    with monkeypatch.context() as older:
        older.setattr("flows.durable.begin.revoke_lost_blocks", AsyncMock(return_value=Left.SAVED))
        failed = await retry(flows.sft, flow_run_id)
        assert "the lineage is broken" in str(failed.message)
    state = await retry(flows.sft, flow_run_id)
    assert state.is_completed(), state.message
    rows, measured = (lines(tmp_path / "tiny-sft" / f"{what}.jsonl") for what in ("states", "evaluations"))
    assert [one["parent_state_id"] for one in rows] == [None, *(one["state_id"] for one in rows[:-1])]
    assert [one["attempt"] for one in rows] == [1, 2, 3]
    assert [one["state_id"] for one in measured] == [None, rows[-1]["state_id"]]
    again = await flows.sft(sft_config(tmp_path, **{**config.model_dump(), "name": "undisturbed"}))
    assert (await state.result())["adapter_sha256"] == again["adapter_sha256"]


async def test_how_a_failed_attempts_session_ended_is_an_artifact_of_the_flow_run(
    local: GatewayProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow_run_id = await fails_in_cycle_four(tmp_path, monkeypatch)
    of_this_run = ArtifactFilter(
        flow_run_id=ArtifactFilterFlowRunId(any_=[flow_run_id]), key=ArtifactFilterKey(any_=[KEY])
    )
    async with get_client() as api:
        (artifact,) = await api.read_artifacts(artifact_filter=of_this_run)
    (session,) = await sessions_of(flow_run_id)
    (run,) = session.runs
    assert run.status in ("cancelled", "failed")
    assert f"run {run.run_id} {run.status}, terminal after" in str(artifact.data)
    assert f"session {session.session_id} closed" in str(artifact.data)


async def test_only_the_last_states_are_kept(local: GatewayProcess, tmp_path: Path) -> None:
    await flows.grpo(config_of(tmp_path, keep_states=2))
    kept = []
    async with WhitneyClient(WhitneySettings()) as client:
        for row in states_of(tmp_path):
            try:
                kept.append((await client.get_state(row["state_id"])).state_id)
            except WhitneyError:
                kept.append(None)
    assert kept == [None, None, *(row["state_id"] for row in states_of(tmp_path)[2:])]


async def test_data_that_has_changed_is_refused_and_named_unless_it_is_meant(
    local: GatewayProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "sums.jsonl"
    rows = [f'{{"prompt": "{a}+{a}=", "answer": "{a + a}"}}' for a in range(12)]
    data.write_text("\n".join(rows))
    fields = {"data": {"source": str(data), "heldout_fraction": 0.0}}
    flow_run_id = await fails_in_cycle_four(tmp_path, monkeypatch, **fields)
    data.write_text("\n".join(rows[:-1]))
    state = await retry(flows.grpo, flow_run_id)
    with pytest.raises(ConfigError, match=r"data\.fingerprint: '\w+' → '\w+'"):
        await state.result()
    assert len(await sessions_of(flow_run_id)) == 1
    monkeypatch.setenv(ALLOW_DRIFT, "1")
    assert (await retry(flows.grpo, flow_run_id)).is_completed()
    (drift,) = RunFolder.open(tmp_path, "tiny-grpo", str(flow_run_id)).read_config()["drift"]
    assert drift["attempt"] == 3
    assert list(drift["changes"]) == ["data.fingerprint"]


async def test_a_run_that_is_made_longer_after_its_end_is_not_given_the_adapter_of_the_shorter_one(
    local: GatewayProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow_run_id, state = await first_attempt(flows.grpo, config_of(tmp_path, cycles=2))
    assert state.is_completed()
    monkeypatch.setenv(ALLOW_DRIFT, "1")
    async with get_client() as api:
        longer = {"config": config_of(tmp_path, cycles=3).model_dump(mode="json")}
        await api.update_flow_run(flow_run_id, parameters=longer)
        # Completed with nothing to show, as a run that failed while its session was closing.
        await api.set_flow_run_state(flow_run_id, Failed(), force=True)
    with pytest.raises(ConfigError, match="was exported at state"):
        await (await retry(flows.grpo, flow_run_id)).result()


async def test_a_new_attempt_closes_the_session_that_an_earlier_one_has_left_open(
    local: GatewayProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow_run_id = await fails_in_cycle_four(tmp_path, monkeypatch)
    labels = {FLOW_RUN: str(flow_run_id), ATTEMPT: "1", CREATE_KEY: "left"}
    async with WhitneyClient(WhitneySettings()) as client:
        await client.create_session(create_key=f"left:{flow_run_id}", labels=labels)
    assert (await retry(flows.grpo, flow_run_id)).is_completed()
    assert [(one.labels[ATTEMPT], one.status) for one in await sessions_of(flow_run_id)] == [
        ("1", "closed"),
        ("1", "closed"),
        ("2", "closed"),
    ]


async def test_an_attempt_waits_for_an_earlier_one_and_ends_what_that_still_opens(
    local: GatewayProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    flow_run_id = await fails_in_cycle_four(tmp_path, monkeypatch)
    lock = RunFolder.open(tmp_path, "tiny-grpo", str(flow_run_id)).lock()
    lock.acquire()
    retried = asyncio.create_task(retry(flows.grpo, flow_run_id))
    while "an earlier attempt still holds" not in caplog.text:
        await asyncio.sleep(0.05)
    labels = {FLOW_RUN: str(flow_run_id), ATTEMPT: "1"}
    async with WhitneyClient(WhitneySettings()) as client:  # it was only beginning, and opens its session now
        late = await client.create_session(create_key=f"late:{flow_run_id}", labels=labels)
        while (await client.get_session(late.session_id)).status == "open":
            await asyncio.sleep(0.05)
    assert not retried.done()
    lock.release()
    assert (await retried).is_completed()


async def test_a_process_that_does_not_let_go_is_named_after_a_while(
    local: GatewayProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.durable.earlier.HANDOVER_S", 0.5)
    flow_run_id = await fails_in_cycle_four(tmp_path, monkeypatch)
    with RunFolder.open(tmp_path, "tiny-grpo", str(flow_run_id)).lock():
        state = await retry(flows.grpo, flow_run_id)
    with pytest.raises(ConfigError, match=r"another process has been at work.*tiny-grpo/\.lock"):
        await state.result()


async def test_a_run_that_was_suspended_and_resumed_goes_on_in_a_session_of_its_own(
    local: GatewayProcess, tmp_path: Path
) -> None:
    parameters = {"config": config_of(tmp_path, cycles=6).model_dump(mode="json")}
    deployment = RunnerDeployment.from_flow(flows.grpo, name="suspended")  # nothing else can be suspended
    metrics = tmp_path / "tiny-grpo" / "metrics.jsonl"
    async with get_client() as api:
        flow_run = await api.create_flow_run_from_deployment(await deployment.apply(), parameters=parameters)
        running = asyncio.create_task(ended(flows.grpo, flow_run))
        while not metrics.exists():
            await asyncio.sleep(0.05)
        await suspend_flow_run(flow_run_id=flow_run.id)
        with pytest.raises(Pause):  # the signal that a worker's process ends with
            await running
        assert [one.status for one in await sessions_of(flow_run.id)] == ["closed"]
        await api.resume_flow_run(flow_run.id)
        resumed = await ended(flows.grpo, await api.read_flow_run(flow_run.id))
    assert resumed.is_completed()
    assert [one.status for one in await sessions_of(flow_run.id)] == ["closed", "closed"]
    assert [one["block"] for one in states_of(tmp_path)] == list(range(6))
    assert (await resumed.result())["adapter_sha256"] == await undisturbed(tmp_path, cycles=6)
