"""What every Whitney must do, by the contract."""

from __future__ import annotations

import gzip
import io
import tarfile
from typing import Any
from uuid import uuid4

import httpx
import orjson
import pytest
import zstandard

from whitney.routes import Route

PROMPT = [5, 6, 7]
STEP = {"optimizer": {"learning_rate": 1e-3}}
SAMPLING = {"max_tokens": 4, "temperature": 1.0, "seed": 3}


def _sample(count: int = 2, **params: Any) -> dict[str, Any]:
    return {"prompt": {"token_ids": PROMPT}, "num_samples": count, "sampling_params": SAMPLING | params}


def _floats(*values: float) -> dict[str, Any]:
    return {"dtype": "float32", "shape": [len(values)], "values": list(values)}


def _training(*weights: float) -> dict[str, Any]:
    weights = weights or (0.0, 1.0, 1.0)
    targets = {"dtype": "int64", "shape": [3], "values": [6, 7, 8]}
    datum = {"input": {"token_ids": PROMPT}, "loss_inputs": {"target_tokens": targets, "weights": _floats(*weights)}}
    return {"data": [datum], "loss_function": "cross_entropy", "loss_config": {}}


def _error(answer: httpx.Response, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    error: dict[str, Any] = answer.json()["error"]
    assert error.keys() == {"code", "message", "retryable", "details"}
    return error


def _gone(answer: httpx.Response) -> None:
    """An endpoint may remember what it has deleted, and need not."""
    assert answer.status_code in (404, 410), answer.text
    _error(answer, answer.status_code)


def test_healthz_is_the_only_route_without_a_key(address: tuple[str, str], routes: dict[str, Route]) -> None:
    base_url, key = address
    with httpx.Client(base_url=base_url, trust_env=False) as stranger:
        assert stranger.get(routes["healthz"].path()).json()["status"] == "ok"
        for header in ({}, {"authorization": "Bearer wrong"}, {"authorization": f"Basic {key}"}):
            answer = stranger.get(routes["capabilities"].path(), headers=header)
            error = _error(answer, 401)
            assert "WHITNEY_API_KEY" in error["message"]
            assert key not in answer.text


def test_capabilities_say_what_is_served_and_name_no_loss(whitney: Any) -> None:
    row = whitney.row
    assert {"sample", "forward_backward", "save_state"} <= set(row["operations"])
    assert row["max_sequence_tokens"] > 0
    assert row["max_lora_rank"] > 0
    assert row["loss_reduction"] in ("sum", "mean")
    assert "losses" not in row


def test_the_same_create_key_gives_the_same_session_and_another_body_a_conflict(whitney: Any) -> None:
    body = {"create_key": uuid4().hex, "labels": {"a": "1"}}
    first, second = (whitney.send("create_session", body).json() for _ in range(2))
    whitney._sessions.append(first["session_id"])
    assert first["session_id"] == second["session_id"]
    assert _error(whitney.send("create_session", body | {"labels": {}}), 409)["code"] == "create_key_conflict"


def test_the_same_create_key_gives_the_same_run_and_another_body_a_conflict(whitney: Any) -> None:
    session_id = whitney.open_session()
    body = whitney.run_body()
    first, second = (whitney.send("create_run", body, session_id=session_id).json() for _ in range(2))
    assert first["run_id"] == second["run_id"]
    assert (
        _error(whitney.send("create_run", body | {"role": "critic"}, session_id=session_id), 409)["code"]
        == "create_key_conflict"
    )


def test_sessions_are_found_by_their_labels_and_status(whitney: Any) -> None:
    mark = uuid4().hex
    wanted = whitney.open_session(mark=mark, colon="a:b")
    whitney.open_session(mark=mark, colon="c")
    found = whitney.get("list_sessions", {"label": [f"mark:{mark}", "colon:a:b"], "status": "open"})["sessions"]
    assert [session["session_id"] for session in found] == [wanted]
    assert found[0]["labels"] == {"mark": mark, "colon": "a:b"}
    assert whitney.get("list_sessions", {"label": f"mark:{mark}", "status": "closed"})["sessions"] == []
    assert len(whitney.get("list_sessions", {"label": f"mark:{mark}"})["sessions"]) == 2


def test_a_whole_training_loop(whitney: Any) -> None:
    session_id = whitney.open_session()
    run_id = whitney.open_run(session_id)
    sampler = whitney.do(run_id, 0, "save_weights_for_sampler", {})["sampler_id"]
    sequences = whitney.do(run_id, 1, "sample", _sample(3), sampler)["sequences"]
    assert len(sequences) == 3
    for sequence in sequences:
        assert 1 <= len(sequence["tokens"]) <= 4
        assert len(sequence["logprobs"]) == len(sequence["tokens"])
        assert all(logprob <= 0 for logprob in sequence["logprobs"])
        assert sequence["stop_reason"] in ("stop", "length")
    outputs = whitney.do(run_id, 2, "forward_backward", _training())["loss_outputs"]
    assert [output["logprobs"]["shape"] for output in outputs] == [[3]]
    assert whitney.do(run_id, 3, "optim_step", STEP)["metrics"]["grad_norm"] > 0
    assert whitney.do(run_id, 4, "save_state", {})["state_id"]
    assert whitney.do(run_id, 5, "export_lora", {})["format"] == "peft"
    assert whitney.send("finish_run", run_id=run_id).status_code == 202
    assert whitney.until_terminal(run_id) == "finished"
    assert whitney.send("close_session", session_id=session_id).json()["status"] == "closed"


def test_logprobs_are_one_a_token_and_null_for_the_first(whitney: Any) -> None:
    run_id = whitney.open_run()
    sampler = whitney.do(run_id, 0, "save_weights_for_sampler", {})["sampler_id"]
    result = whitney.do(run_id, 1, "logprobs", {"input": {"token_ids": PROMPT}, "topk": 2}, sampler)
    assert result["logprobs"][0] is None
    assert len(result["logprobs"]) == len(PROMPT)
    assert [len(row) for row in result["topk"][1:]] == [2, 2]


def test_a_snapshot_is_not_moved_by_later_training(whitney: Any) -> None:
    run_id = whitney.open_run()
    sampler = whitney.do(run_id, 0, "save_weights_for_sampler", {})["sampler_id"]
    before = whitney.do(run_id, 1, "sample", _sample(), sampler)
    whitney.do(run_id, 2, "forward_backward", _training())
    whitney.do(run_id, 3, "optim_step", {"optimizer": {"learning_rate": 0.1}})
    after = whitney.do(run_id, 4, "sample", _sample(), sampler)
    assert [s["tokens"] for s in after["sequences"]] == [s["tokens"] for s in before["sequences"]]
    newer = whitney.do(run_id, 5, "save_weights_for_sampler", {})["sampler_id"]
    assert newer != sampler
    assert whitney.do(run_id, 6, "sample", _sample(), newer)["sequences"] != after["sequences"]


def test_the_same_body_twice_is_one_execution_and_one_bill(whitney: Any) -> None:
    run_id = whitney.open_run()
    for _ in range(2):
        answer = whitney.post(run_id, 0, "forward_backward", _training())
        assert answer.status_code == 202
    whitney.wait(run_id, 0)
    again = whitney.post(run_id, 0, "forward_backward", _training()).json()
    assert again["status"] == "succeeded"
    assert whitney.run(run_id)["usage"]["operations"] == {"forward_backward": 1}
    assert whitney.run(run_id)["next_seq_id"] == 1


def test_another_body_under_a_taken_seq_id_is_a_final_conflict(whitney: Any) -> None:
    run_id = whitney.open_run()
    whitney.do(run_id, 0, "forward_backward", _training())
    for kind, payload in (("forward_backward", _training(1.0, 1.0, 1.0)), ("save_state", {})):
        error = _error(whitney.post(run_id, 0, kind, payload), 409)
        assert (error["code"], error["retryable"]) == ("seq_conflict", False)


def test_operations_that_arrive_early_wait_for_the_gap_to_close(whitney: Any) -> None:
    run_id = whitney.open_run()
    assert whitney.post(run_id, 1, "optim_step", STEP).json()["status"] == "queued"
    assert whitney.post(run_id, 2, "save_state", {}).json()["status"] == "queued"
    assert whitney.operation(run_id, 1, wait_s=0.2)["status"] == "queued"
    assert whitney.run(run_id)["next_seq_id"] == 0
    whitney.post(run_id, 0, "forward_backward", _training())
    assert [whitney.wait(run_id, seq_id)["status"] for seq_id in (2, 1, 0)] == ["succeeded"] * 3
    assert whitney.run(run_id)["next_seq_id"] == 3


def test_a_seq_id_may_lie_256_ahead_and_no_further(whitney: Any) -> None:
    run_id = whitney.open_run()
    error = _error(whitney.post(run_id, 257, "save_state", {}), 409)
    assert (error["code"], error["retryable"]) == ("seq_gap", True)
    assert whitney.post(run_id, 256, "save_state", {}).status_code == 202
    whitney.do(run_id, 0, "save_state", {})
    assert whitney.post(run_id, 257, "save_state", {}).status_code == 202


def test_a_refused_body_does_not_consume_the_seq_id(whitney: Any) -> None:
    run_id = whitney.open_run()
    broken = _training() | {"loss_function": "hinge"}
    error = _error(whitney.post(run_id, 0, "forward_backward", broken), 422)
    assert error["details"]["path"] == "payload.loss_function"
    assert "cross_entropy" in error["message"]
    whitney.do(run_id, 0, "forward_backward", _training())


def test_cancel_keeps_what_is_done_and_cancels_what_is_queued(whitney: Any) -> None:
    run_id = whitney.open_run()
    whitney.do(run_id, 0, "forward_backward", _training())
    whitney.post(run_id, 2, "optim_step", STEP)  # held behind a gap that never closes
    for _ in range(2):
        assert whitney.send("cancel_run", run_id=run_id).status_code == 202
    assert whitney.until_terminal(run_id) == "cancelled"
    assert whitney.wait(run_id, 0)["status"] == "succeeded"
    assert whitney.wait(run_id, 2)["status"] == "cancelled"
    assert whitney.run(run_id)["usage"]["operations"] == {"forward_backward": 1}
    assert _error(whitney.send("finish_run", run_id=run_id), 409)["code"] == "run_not_active"
    assert _error(whitney.post(run_id, 3, "save_state", {}), 409)["code"] == "run_not_active"


def test_finish_executes_what_is_queued_and_takes_nothing_more(whitney: Any) -> None:
    run_id = whitney.open_run()
    whitney.post(run_id, 0, "forward_backward", _training())
    whitney.post(run_id, 1, "optim_step", STEP)
    for _ in range(2):
        assert whitney.send("finish_run", run_id=run_id).status_code == 202
    assert _error(whitney.post(run_id, 2, "save_state", {}), 409)["code"] == "run_not_active"
    assert whitney.until_terminal(run_id) == "finished"
    assert [whitney.wait(run_id, seq_id)["status"] for seq_id in (0, 1)] == ["succeeded"] * 2
    assert whitney.send("finish_run", run_id=run_id).status_code == 202
    assert whitney.send("cancel_run", run_id=run_id).json()["status"] == "finished"


def test_a_run_with_a_gap_cannot_be_finished(whitney: Any) -> None:
    run_id = whitney.open_run()
    whitney.post(run_id, 1, "save_state", {})
    error = _error(whitney.send("finish_run", run_id=run_id), 409)
    assert error["code"] == "seq_gap"
    assert "seq_id 0" in error["message"]


def test_a_session_closes_only_when_every_run_is_terminal(whitney: Any) -> None:
    session_id = whitney.open_session()
    policy, teacher = whitney.open_run(session_id), whitney.open_run(session_id)
    whitney.send("cancel_run", run_id=policy)
    error = _error(whitney.send("close_session", session_id=session_id), 409)
    assert error["code"] == "run_not_terminal"
    assert error["details"]["runs"] == [teacher]
    whitney.send("cancel_run", run_id=teacher)
    whitney.until_terminal(teacher)
    for _ in range(2):
        assert whitney.send("close_session", session_id=session_id).json()["status"] == "closed"
    assert _error(whitney.send("create_run", whitney.run_body(), session_id=session_id), 409)["code"] == (
        "session_closed"
    )
    assert _error(whitney.send("heartbeat", session_id=session_id), 409)["code"] == "session_closed"


def test_a_heartbeat_is_answered_while_the_session_is_open(whitney: Any) -> None:
    session_id = whitney.open_session()
    assert whitney.send("heartbeat", session_id=session_id).json()["status"] == "open"


def test_states_and_artifacts_outlive_their_session_until_they_are_deleted(whitney: Any) -> None:
    session_id = whitney.open_session()
    run_id = whitney.open_run(session_id)
    state_id = whitney.do(run_id, 0, "save_state", {})["state_id"]
    artifact_id = whitney.do(run_id, 1, "export_lora", {})["artifact_id"]
    whitney.send("cancel_run", run_id=run_id)
    whitney.until_terminal(run_id)
    whitney.send("close_session", session_id=session_id)
    state = whitney.get("get_state", state_id=state_id)
    assert (state["run_id"], state["model"]) == (run_id, whitney.row["model"])
    archive = whitney.send("get_artifact", artifact_id=artifact_id)
    with tarfile.open(fileobj=io.BytesIO(archive.content), mode="r:gz") as members:
        assert {"adapter_config.json", "adapter_model.safetensors"} <= set(members.getnames())
    whitney.open_run(initial={"state_id": state_id})
    whitney.open_run(initial={"artifact_id": artifact_id})
    for kind, named in (("state", {"state_id": state_id}), ("artifact", {"artifact_id": artifact_id})):
        assert whitney.send(f"delete_{kind}", **named).is_success
        _gone(whitney.send(f"get_{kind}", **named))


def test_a_run_restored_from_a_state_goes_on_where_it_was(whitney: Any) -> None:
    first = whitney.open_run()
    whitney.do(first, 0, "forward_backward", _training())
    whitney.do(first, 1, "optim_step", STEP)
    state_id = whitney.do(first, 2, "save_state", {})["state_id"]
    restored = whitney.open_run(initial={"state_id": state_id})
    results = []
    for run_id, seq_id in ((first, 3), (restored, 0)):
        whitney.do(run_id, seq_id, "forward_backward", _training())
        results.append(whitney.do(run_id, seq_id + 1, "optim_step", STEP)["metrics"])
    assert results[0] == results[1]
    assert results[1]["step"] == 2


@pytest.mark.parametrize("field", ["state_id", "artifact_id"])
def test_a_run_with_another_runs_weights_and_no_optimizer_has_its_logprobs_and_takes_its_own_first_step(
    whitney: Any, field: str
) -> None:
    first = whitney.open_run()
    whitney.do(first, 0, "forward_backward", _training())
    whitney.do(first, 1, "optim_step", {"optimizer": {"learning_rate": 0.1}})
    files = whitney.do(first, 2, "save_state", {}) | whitney.do(first, 3, "export_lora", {})
    other = whitney.open_run(initial={field: files[field]}, with_optimizer=False)
    untrained = whitney.open_run()
    scored = []
    for run_id, seq_id in ((first, 4), (other, 0), (untrained, 0)):
        sampler = whitney.do(run_id, seq_id, "save_weights_for_sampler", {})["sampler_id"]
        result = whitney.do(run_id, seq_id + 1, "logprobs", {"input": {"token_ids": PROMPT}}, sampler)
        scored.append(result["logprobs"][1:])
    assert scored[1] == pytest.approx(scored[0], abs=1e-4)
    assert scored[2] != pytest.approx(scored[0], abs=1e-3)
    whitney.do(other, 2, "forward_backward", _training())
    assert whitney.do(other, 3, "optim_step", STEP)["metrics"]["step"] == 1


def test_a_run_goes_on_when_the_file_it_began_from_is_deleted(whitney: Any) -> None:
    first = whitney.open_run()
    state_id = whitney.do(first, 0, "save_state", {})["state_id"]
    other = whitney.open_run(initial={"state_id": state_id})
    assert whitney.send("delete_state", state_id=state_id).is_success
    whitney.do(other, 0, "forward_backward", _training())
    body = whitney.run_body(initial={"state_id": state_id})
    _gone(whitney.send("create_run", body, session_id=whitney.open_session()))


def test_a_state_of_another_rank_is_refused_in_a_sentence(whitney: Any) -> None:
    state_id = whitney.do(whitney.open_run(), 0, "save_state", {})["state_id"]
    body = whitney.run_body(initial={"state_id": state_id}, lora={"rank": 2, "alpha": 8.0, "seed": 1})
    error = _error(whitney.send("create_run", body, session_id=whitney.open_session()), 422)
    assert "rank 4" in error["message"]


@pytest.mark.parametrize(
    ("route", "ids"),
    [
        ("get_session", {"session_id": "ses_none"}),
        ("heartbeat", {"session_id": "ses_none"}),
        ("close_session", {"session_id": "ses_none"}),
        ("get_run", {"run_id": "run_none"}),
        ("cancel_run", {"run_id": "run_none"}),
        ("finish_run", {"run_id": "run_none"}),
        ("get_operation", {"run_id": "run_none", "seq_id": 0}),
        ("run_operation", {"run_id": "run_none"}),
        ("get_state", {"state_id": "st_none"}),
        ("get_artifact", {"artifact_id": "art_none"}),
    ],
)
def test_what_is_not_there_is_a_404_that_says_what(whitney: Any, route: str, ids: dict[str, str | int]) -> None:
    body = {"seq_id": 0, "kind": "save_state", "payload": {}} if route == "run_operation" else None
    missing = next(iter(ids)).removesuffix("_id")
    assert _error(whitney.send(route, body, **ids), 404)["code"] == f"{missing}_not_found"


def test_a_path_that_is_no_route_is_a_404_in_the_same_form(whitney: Any) -> None:
    nowhere = whitney.routes["capabilities"].path() + "/nothing"
    assert _error(whitney.http.get(nowhere), 404)["code"] == "route_not_found"


def test_an_unknown_operation_or_sampler_of_a_run_is_a_404(whitney: Any) -> None:
    run_id = whitney.open_run()
    assert _error(whitney.send("get_operation", run_id=run_id, seq_id=0), 404)["code"] == "operation_not_found"
    assert _error(whitney.post(run_id, 0, "sample", _sample(), "smp_none"), 404)["code"] == "sampler_not_found"


@pytest.mark.parametrize("wait_s", ["61", "-1", "nan", "soon"])
def test_a_long_poll_lasts_60_seconds_at_most(whitney: Any, wait_s: str) -> None:
    run_id = whitney.open_run()
    whitney.do(run_id, 0, "save_state", {})
    error = _error(whitney.send("get_operation", params={"wait_s": wait_s}, run_id=run_id, seq_id=0), 422)
    assert error["details"]["path"] == "wait_s"


@pytest.mark.parametrize(("encoding", "compress"), [("gzip", gzip.compress), ("zstd", zstandard.compress)])
def test_compressed_bodies_are_the_same_bodies(whitney: Any, encoding: str, compress: Any) -> None:
    run_id = whitney.open_run()
    body = orjson.dumps({"seq_id": 0, "kind": "forward_backward", "payload": _training()})
    answer = whitney.http.post(
        whitney.routes["run_operation"].path(run_id=run_id),
        content=compress(body),
        headers={"content-encoding": encoding},
    )
    assert answer.status_code == 202, answer.text
    assert whitney.wait(run_id, 0)["status"] == "succeeded"
    assert whitney.post(run_id, 0, "forward_backward", _training()).json()["status"] == "succeeded"


def test_the_bill_adds_up_by_kind_and_tokens(whitney: Any) -> None:
    run_id = whitney.open_run()
    sampler = whitney.do(run_id, 0, "save_weights_for_sampler", {})["sampler_id"]
    operations = [
        ("sample", _sample(2), sampler),
        ("sample", _sample(2, seed=9), sampler),
        ("logprobs", {"input": {"token_ids": PROMPT}}, sampler),
        ("forward_backward", _training(), None),
    ]
    for offset, (kind, payload, on) in enumerate(operations, start=1):
        whitney.do(run_id, offset, kind, payload, on)
    sampled = [whitney.wait(run_id, seq_id) for seq_id in (1, 2)]
    usage = whitney.run(run_id)["usage"]
    assert usage["operations"] == {"save_weights_for_sampler": 1, "sample": 2, "logprobs": 1, "forward_backward": 1}
    tokens = sum(len(s["tokens"]) for operation in sampled for s in operation["result"]["sequences"])
    assert usage["sampled_tokens"] == tokens
    assert usage["prefill_tokens"] == 3 * len(PROMPT)
    assert usage["trained_tokens"] == len(PROMPT)
