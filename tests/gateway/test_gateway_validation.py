"""Bad input: each refusal names its field, says what is known, and never repeats what was sent."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

SECRET = 424242


def _changed(payload: Any, path: str, value: Any) -> Any:
    """A deep copy of `payload` with one field replaced."""
    payload = orjson.loads(orjson.dumps(payload))
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    target = payload
    for part in parents:
        target = target[part]
    target[last] = value
    return payload


_TARGETS = "data.0.loss_inputs.target_tokens"
_WEIGHTS = "data.0.loss_inputs.weights"
_EXTRA = {"dtype": "float32", "shape": [3], "values": [1, 2, 3]}
_ODD = {"dtype": "float32", "shape": [3], "values": [1, "2", 3]}


@pytest.mark.parametrize(
    ("field", "value", "path", "says"),
    [
        ("loss_function", "hinge", "payload.loss_function", "'cross_entropy'"),
        ("loss_config", {"temperature": 1.0}, "payload.loss_config.temperature", "takes no such key; its keys: none"),
        ("loss_config", {"clip": "x"}, "payload.loss_config.clip", "valid number"),
        ("data", [], "payload.data", "at least 1"),
        ("data.0.input.token_ids", [], "payload.data.0.input.token_ids", "at least 1"),
        ("data.0.input.token_ids.1", -SECRET, "payload.data.0.input.token_ids.1", "greater than or equal to 0"),
        ("data.0.input.token_ids.1", f"{SECRET}", "payload.data.0.input.token_ids.1", "valid integer"),
        ("data.0.input.token_ids.1", 4242.5, "payload.data.0.input.token_ids.1", "valid integer"),
        ("data.0.input.token_ids", [SECRET] * 4, "payload.data.0", "has 3 rows, input.token_ids has 4"),
        (f"{_WEIGHTS}.values.2", f"{SECRET}", "payload.data.0.loss_inputs.weights.values.2", "valid number"),
        (f"{_WEIGHTS}.values.2", None, "payload.data.0.loss_inputs.weights.values.2", "valid number"),
        (f"{_WEIGHTS}.values", [SECRET], "payload.data.0.loss_inputs.weights", "asks for 3 values, 1 were sent"),
        (f"{_WEIGHTS}.values", [0, 0, 0], "payload.data", "every weight is 0"),
        (f"{_WEIGHTS}.dtype", "float64", "payload.data.0.loss_inputs.weights", "int64, float32"),
        (
            _WEIGHTS,
            {"dtype": "int64", "shape": [3], "values": [0, 1, 1]},
            f"payload.{_WEIGHTS}.dtype",
            "must be float32",
        ),
        (f"{_WEIGHTS}.shape", [1, 3, 1], "payload.data.0.loss_inputs.weights.shape", "at most 2"),
        (f"{_TARGETS}.values.0", -SECRET, "payload.data.0.loss_inputs.target_tokens.values", "negative"),
        (f"{_TARGETS}.values.0", 1.5, "payload.data.0.loss_inputs.target_tokens.values.0", "valid integer"),
        ("data.0.loss_inputs.float32", _ODD, "payload.data.0.loss_inputs.float32.values.1", "valid number"),
        ("data.0.loss_inputs.mask", _EXTRA, "payload.data.0.loss_inputs.mask", "no such loss input"),
        ("data.0.note", "x", "payload.data.0.note", "Extra inputs are not permitted"),
    ],
)
async def test_a_wrong_training_payload_names_its_field(
    caller: Any, payloads: Any, *, field: str, value: Any, path: str, says: str
) -> None:
    run_id = await caller.open_run()
    answer = await caller.post(run_id, 0, "forward_backward", _changed(payloads.training(), field, value))
    assert answer.status_code == 422, answer.text
    error = answer.json()["error"]
    assert error["details"]["path"] == path
    assert says in error["message"]
    assert error["retryable"] is False
    assert str(SECRET) not in answer.text
    await caller.do(run_id, 0, "forward_backward", payloads.training())


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
async def test_numbers_that_are_not_finite_are_refused(caller: Any, payloads: Any, number: str) -> None:
    run_id = await caller.open_run()
    body = orjson.dumps({"seq_id": 0, "kind": "forward_backward", "payload": payloads.training()})
    body = body.replace(b"[0.0,1.0,1.0]", f"[0.0,1.0,{number}]".encode())
    answer = await caller.send("POST", f"/runs/{run_id}/operations", content=body)
    assert answer.status_code in (400, 422)
    if answer.status_code == 422:
        assert answer.json()["error"]["details"]["path"] == "payload.data.0.loss_inputs.weights.values.2"


@pytest.mark.parametrize(
    ("missing", "loss"),
    [
        ("target_tokens", "cross_entropy"),
        ("weights", "cross_entropy"),
        ("logprobs", "importance_sampling"),
        ("advantages", "ppo"),
        ("advantages", "sapo"),
        ("logprobs", "dro"),
    ],
)
async def test_a_missing_loss_input_is_named_with_what_the_loss_needs(
    caller: Any, payloads: Any, missing: str, loss: str
) -> None:
    run_id = await caller.open_run()
    answer = await caller.post(run_id, 0, "forward_backward", payloads.training(loss, **{missing: None}))
    error = answer.json()["error"]
    assert answer.status_code == 422
    assert error["details"]["path"] == f"payload.data.0.loss_inputs.{missing}"
    assert f"{loss} needs" in error["message"]


@pytest.mark.parametrize(
    ("kind", "payload", "path"),
    [
        ("optim_step", {"optimizer": {}}, "payload.optimizer.learning_rate"),
        ("optim_step", {"optimizer": {"learning_rate": -1}}, "payload.optimizer.learning_rate"),
        ("optim_step", {"optimizer": {"learning_rate": 1, "beta1": 1}}, "payload.optimizer.beta1"),
        ("optim_step", {"optimizer": {"learning_rate": 1, "momentum": 1}}, "payload.optimizer.momentum"),
        ("optim_step", {"optimizer": {"learning_rate": 1, "name": "sgd"}}, "payload.optimizer.name"),
        ("save_state", {"name": "x"}, "payload.name"),
    ],
)
async def test_other_wrong_payloads_name_their_field(caller: Any, kind: str, payload: Any, path: str) -> None:
    run_id = await caller.open_run()
    answer = await caller.post(run_id, 0, kind, payload)
    assert answer.status_code == 422
    assert answer.json()["error"]["details"]["path"] == path


@pytest.mark.parametrize("kind", ["train", "sample"])
async def test_an_operation_of_no_or_another_route_is_refused_with_the_known_ones(caller: Any, kind: str) -> None:
    run_id = await caller.open_run()
    error = (await caller.post(run_id, 0, kind, {})).json()["error"]
    assert error["details"]["path"] == "kind"
    assert "forward_backward" in error["message"]
    assert "sample, logprobs" in error["message"]


@pytest.mark.parametrize(
    ("body", "status", "path"),
    [
        (b"", 400, None),
        (b"{", 400, None),
        (b"[]", 422, ""),
        (b'{"kind": "save_state", "payload": {}}', 422, "seq_id"),
        (b'{"kind": "save_state", "payload": {}, "seq_id": -1}', 422, "seq_id"),
        (b'{"kind": "save_state", "payload": {}, "seq_id": "0"}', 422, "seq_id"),
        (b'{"kind": "save_state", "payload": {}, "seq_id": true}', 422, "seq_id"),
        (b'{"kind": "save_state", "seq_id": 0}', 422, "payload"),
        (b'{"payload": {}, "seq_id": 0}', 422, "kind"),
        (b'{"kind": "save_state", "payload": {}, "seq_id": 99999999999999999999999}', 422, "seq_id"),
    ],
)
async def test_an_envelope_that_is_wrong(caller: Any, body: bytes, status: int, path: str | None) -> None:
    run_id = await caller.open_run()
    answer = await caller.send("POST", f"/runs/{run_id}/operations", content=body)
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]["details"].get("path") == path


async def test_sequences_beyond_the_models_context_are_refused_before_they_can_fail_the_run(
    caller: Any, payloads: Any
) -> None:
    run_id = await caller.open_run()
    sampler = await caller.open_sampler(run_id)
    long = [5] * 8193
    cases = [
        ("sample", payloads.sample(max_tokens=8190), "payload.sampling_params.max_tokens"),
        ("logprobs", {"input": {"token_ids": long}}, "payload.input.token_ids"),
    ]
    for kind, payload, path in cases:
        answer = await caller.post(run_id, 1, kind, payload, sampler)
        assert answer.json()["error"]["details"]["path"] == path
        assert "8192" in answer.json()["error"]["message"]
    assert (await caller.post(run_id, 1, "sample", payloads.sample(max_tokens=8189), sampler)).status_code == 202


@pytest.mark.parametrize(
    ("fields", "path", "says"),
    [
        ({"provider": "modal"}, "provider", "known: local"),
        ({"model": "llama-9"}, "model", "known: tiny"),
        ({"lora": {"rank": 999}}, "lora.rank", "256"),
        ({"lora": {"rank": 0}}, "lora.rank", "greater than or equal to 1"),
        ({"role": "judge"}, "role", "'policy' or 'critic'"),
        ({"initial": {}}, "initial", "exactly one"),
        ({"create_key": ""}, "create_key", "at least 1"),
        ({"colour": 1}, "colour", "Extra inputs"),
    ],
)
async def test_a_run_that_cannot_be_is_refused_with_what_is_known(
    caller: Any, fields: Any, path: str, says: str
) -> None:
    session_id = await caller.open_session()
    answer = await caller.send("POST", f"/sessions/{session_id}/runs", caller.run_body(**fields))
    assert answer.status_code == 422
    error = answer.json()["error"]
    assert error["details"]["path"] == path
    assert says in error["message"]
    assert (await caller.get(f"/sessions/{session_id}"))["runs"] == []


async def test_session_filters_that_are_wrong_are_refused(caller: Any) -> None:
    for query, path in (("label=nocolon", "label"), ("status=ajar", "status")):
        answer = await caller.send("GET", f"/sessions?{query}")
        assert answer.status_code == 422
        assert answer.json()["error"]["details"]["path"] == path


@pytest.mark.parametrize("seq_id", ["x", "-1", "1.0", "9" * 30, "%C2%B2"])
async def test_a_seq_id_in_a_path_that_is_none_is_refused(caller: Any, seq_id: str) -> None:
    run_id = await caller.open_run()
    answer = await caller.send("GET", f"/runs/{run_id}/operations/{seq_id}")
    assert answer.status_code == 422
    assert answer.json()["error"]["details"]["path"] == "seq_id"


async def test_a_refusal_of_a_provider_becomes_a_sentence_for_the_user(
    caller: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(spec: Any) -> None:
        raise ValueError("the adapter file is damaged")

    monkeypatch.setattr(caller.provider, "create_run", refuse)
    session_id = await caller.open_session()
    answer = await caller.send("POST", f"/sessions/{session_id}/runs", caller.run_body())
    assert (answer.status_code, answer.json()["error"]["message"]) == (422, "the adapter file is damaged")


async def test_field_order_and_omitted_defaults_make_the_same_body(caller: Any) -> None:
    run_id = await caller.open_run()
    for payload in ({"optimizer": {"learning_rate": 1}}, {"optimizer": {"beta1": 0.9, "learning_rate": 1.0}}):
        answer = await caller.post(run_id, 1, "optim_step", payload)
        assert answer.status_code == 202
    other = await caller.post(run_id, 1, "optim_step", {"optimizer": {"beta1": 0.8, "learning_rate": 1.0}})
    assert other.json()["error"]["code"] == "seq_conflict"


async def test_a_method_that_a_route_does_not_have_is_a_405_in_the_same_form(caller: Any) -> None:
    answer = await caller.send("PUT", "/sessions")
    assert answer.status_code == 405
    assert answer.json()["error"]["code"] == "method_not_allowed"


async def test_every_answer_carries_a_request_id(caller: Any) -> None:
    answers = [await caller.send("GET", "/capabilities"), await caller.send("GET", "/nothing")]
    assert len({answer.headers["x-request-id"] for answer in answers}) == 2


async def test_an_error_of_our_own_is_a_500_that_quotes_nothing(
    caller: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise KeyError(SECRET)

    monkeypatch.setattr(caller.gateway, "capabilities", fail)
    answer = await caller.send("GET", "/capabilities")
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal")
    assert answer.headers["x-request-id"] in caplog.text
    assert str(SECRET) not in answer.text + caplog.text
