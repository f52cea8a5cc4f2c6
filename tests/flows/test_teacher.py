"""Frozen runs: synced once, never trained or sampled, the same after a Retry, and closed whatever happens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from flow_probes import (
    Taught,
    all_sessions,
    count_tasks,
    descendants,
    first_attempt,
    ledger,
    lose_answer,
    metrics,
    retry,
    sent_payloads,
    sessions_of,
)
from tiny_configs import tiny_config

import flows
import models
from algorithms.opsd import DEMONSTRATION_TEMPLATE
from flows.checks.refusals import teacher_row
from flows.config import ConfigError
from gateway.launch import GatewayProcess
from tasks.rendering import Renderer
from whitney.errors import ConnectionFailedError
from whitney.types import CapabilityRow

CONTEXT = 512


@pytest.fixture
def renderer() -> Renderer:
    return Renderer(models.resolve("tiny"))


async def test_a_teacher_from_an_adapter_in_a_session_of_its_own_is_synced_once_and_only_asked(
    local: GatewayProcess, taught: Taught, tmp_path: Path
) -> None:
    teacher = {"artifact_id": (await taught("local"))["artifact_id"], "session": "own"}
    summary = await flows.opd(tiny_config("opd", tmp_path, teacher=teacher, save_every=1))
    billed = ledger(local, summary["flow_run_id"])
    assert billed["teacher"] == {"save_weights_for_sampler": 1, "logprobs": 16}, "one snapshot for both blocks"
    assert billed["policy"]["optim_step"] == 2
    sessions = await sessions_of(summary["flow_run_id"])
    assert [(session.status, len(session.runs)) for session in sessions] == [("closed", 1)] * 2
    assert summary["open_sessions"] == 0
    below = await descendants(summary["flow_run_id"])
    asked = [run for run in below if run.name in {"teacher log-probs, cycle 1", "teacher log-probs, cycle 2"}]
    assert len(asked) == 2
    assert await count_tasks(asked, "teacher logprobs", 16) == 16
    assert [run.name for run in below].count("open teacher") == 1


async def test_the_base_model_can_teach_a_student_that_starts_elsewhere(
    local: GatewayProcess, taught: Taught, tmp_path: Path
) -> None:
    model = {"name": "tiny", "initial_state_id": (await taught("local"))["state_id"]}
    summary = await flows.opd(tiny_config("opd", tmp_path, model=model, teacher={}, cycles=1))
    (row,) = metrics(summary)
    assert row["teacher_kl"] > 0.1, "the taught student is far from the base model"
    assert row["datums"] == 8


async def test_a_teacher_that_is_the_student_is_refused(local: GatewayProcess, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"teacher: the student already is what the teacher is"):
        await flows.opd(tiny_config("opd", tmp_path, teacher={}))


async def test_after_a_retry_the_reference_is_still_the_initial_weights(
    local: GatewayProcess, taught: Taught, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"state_id": (await taught("local"))["state_id"], "save_every": 1}
    undisturbed = await flows.reinforce_pp(tiny_config("reinforce_pp", tmp_path / "undisturbed", **options))
    mend = lose_answer(monkeypatch, "save_state", 2)
    flow_run_id, failed = await first_attempt(flows.reinforce_pp, tiny_config("reinforce_pp", tmp_path, **options))
    assert failed.is_failed()
    assert {run.status for session in await sessions_of(flow_run_id) for run in session.runs} == {"cancelled"}
    mend()
    retried = await (await retry(flows.reinforce_pp, flow_run_id)).result()
    assert "policy" in ledger(local, flow_run_id, attempt=2)
    assert ledger(local, flow_run_id, attempt=2)["reference"] == {"save_weights_for_sampler": 1, "logprobs": 8}
    first, second = metrics(retried)
    assert abs(first["kl_reference"]) < 1e-4, "before the first step the policy is the reference"
    assert abs(second["kl_reference"]) > 1e-3, "made of the resumed state it would still be"
    assert second["kl_reference"] == metrics(undisturbed)[1]["kl_reference"]
    assert retried["adapter_sha256"] == undisturbed["adapter_sha256"]


@pytest.mark.parametrize(
    ("algorithm", "kind", "fields", "runs"),
    [
        ("opd", "logprobs", {"teacher": {"session": "own"}}, 2),
        ("reinforce_pp", "logprobs", {}, 2),
        ("ppo_critic", "optim_step", {}, 2),
        ("dpo", "forward", {}, 2),
    ],
)
async def test_a_flow_that_fails_cancels_all_its_runs_and_closes_all_its_sessions(  # noqa: PLR0917 - fixtures
    algorithm: str,
    kind: str,
    fields: dict[str, Any],
    runs: int,
    taught: Taught,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state_id = (await taught("local"))["state_id"]
    if "teacher" in fields:
        fields = {"teacher": {**fields["teacher"], "state_id": state_id}}
    lose_answer(monkeypatch, kind, 2)
    flow_run_id, state = await first_attempt(
        flows.FLOWS[algorithm], tiny_config(algorithm, tmp_path, state_id=state_id, **fields)
    )
    with pytest.raises(ConnectionFailedError, match=f"the answer to {kind}"):
        await state.result()
    sessions = await sessions_of(flow_run_id)
    assert {session.status for session in sessions} == {"closed"}
    assert len(sessions) == (2 if fields else 1)
    assert [run.status for session in sessions for run in session.runs] == ["cancelled"] * runs


async def test_completions_are_cut_to_what_the_teachers_context_has_room_for(
    local: GatewayProcess, taught: Taught, tmp_path: Path, renderer: Renderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = {"prompt": "3 + 4 = ?", "answer": "7"}
    data = tmp_path / "data.jsonl"
    data.write_text(json.dumps(question) + "\n")

    def template(filler: int) -> str:
        return DEMONSTRATION_TEMPLATE + "~" * filler

    def prompt_length(filler: int) -> int:
        text = template(filler).format(question=question["prompt"], answer=question["answer"])
        return len(renderer.prompt_tokens([{"role": "user", "content": text}]))

    filler = next(count for count in range(CONTEXT) if prompt_length(count) == CONTEXT - 1)
    payloads = sent_payloads(monkeypatch)
    config = tiny_config(
        "opsd",
        tmp_path / "runs",
        state_id=(await taught("local"))["state_id"],
        data={"source": str(data), "heldout_fraction": 0},
        template=template(filler),
        cycles=1,
    )
    (row,) = metrics(await flows.opsd(config))
    asked = [payload["input"]["token_ids"] for kind, payload in payloads if kind == "logprobs"]
    assert {len(tokens) for tokens in asked} == {CONTEXT}
    assert row["completion_tokens_mean"] > 1
    assert 0 < row["teacher_truncated"] <= 8
    (step,) = [payload for kind, payload in payloads if kind == "forward_backward"]
    trained = [sum(map(bool, datum["loss_inputs"]["weights"]["values"])) for datum in step["data"]]
    assert set(trained) == {1}, "the student is not trained on what the teacher was not asked about"


def served(
    model: str, sha256: str | None, *, operations: tuple[str, ...] = ("save_weights_for_sampler", "logprobs")
) -> Any:
    return CapabilityRow.model_validate(
        {
            "provider": "local",
            "model": model,
            "operations": operations,
            "max_sequence_tokens": CONTEXT,
            "max_lora_rank": 8,
            "tokenizer_sha256": sha256,
        }
    )


@pytest.mark.parametrize(
    ("teacher", "fields", "said"),
    [
        (served("other", "0" * 64), {}, r"teacher.name = 'other': its tokenizer is not that of 'tiny'"),
        (served("other", None), {}, r"does not say which tokenizer it has, and it is not known here"),
        (served("other", "0" * 64, operations=()), {}, r"does not advertise logprobs, save_weights_for_sampler"),
        (served("other", "0" * 64), {"rank": 64}, r"teacher.rank = 64: local/other takes at most 8"),
        (served("another", "0" * 64), {}, r"teacher.name = 'other': not served here; this gateway serves .*another"),
    ],
)
def test_a_teacher_that_cannot_judge_the_students_tokens_is_refused(
    teacher: CapabilityRow, fields: dict[str, Any], said: str, renderer: Renderer, tmp_path: Path
) -> None:
    student = served("tiny", renderer.tokenizer_sha256)
    config = tiny_config("opd", tmp_path, teacher={"name": "other", **fields})
    with pytest.raises(ConfigError, match=said):
        teacher_row([student, teacher], config, renderer, student)


def test_a_teacher_of_another_name_with_the_students_tokenizer_is_taken(renderer: Renderer, tmp_path: Path) -> None:
    student, teacher = served("tiny", renderer.tokenizer_sha256), served("other", renderer.tokenizer_sha256)
    config = tiny_config("opd", tmp_path, teacher={"name": "other"})
    assert teacher_row([student, teacher], config, renderer, student) == teacher


@pytest.mark.parametrize(
    ("algorithm", "fields", "said"),
    [
        ("opd", {"teacher": {"state_id": "st_none"}}, "teacher.state_id = 'st_none': .*st_none"),
        ("opd", {"teacher": {"artifact_id": "art_none"}}, "teacher.artifact_id = 'art_none': .*art_none"),
        ("sft", {"model": {"name": "tiny", "initial_state_id": "st_gone"}}, "model.initial_state_id = 'st_gone'"),
        ("sft", {"model": {"name": "tiny", "initial_artifact_id": "art_gone"}}, "initial_artifact_id = 'art_gone'"),
    ],
)
async def test_weights_that_the_server_does_not_have_are_refused_before_a_session_is_open(
    algorithm: str, fields: dict[str, Any], said: str, local: GatewayProcess, tmp_path: Path
) -> None:
    before = await all_sessions()
    with pytest.raises(ConfigError, match=said):
        await flows.FLOWS[algorithm](tiny_config(algorithm, tmp_path, **fields))
    assert await all_sessions() == before
