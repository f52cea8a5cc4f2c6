"""Numbers a tensor or a ledger cannot hold, and long lists of wrong ones: refused, and at the first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import Caller, Payloads

_TARGETS = "payload.data.0.loss_inputs.target_tokens.values.0"


@pytest.mark.parametrize("number", [2**63, 2**70, -(2**65)])
async def test_a_target_beyond_64_bits_is_refused(caller: Caller, payloads: Payloads, number: int) -> None:
    targets = {"dtype": "int64", "shape": [3], "values": [number, 7, 8]}
    await _refused_once(caller, "forward_backward", payloads.training(target_tokens=targets), _TARGETS)


async def test_an_input_token_beyond_64_bits_is_refused(caller: Caller, payloads: Payloads) -> None:
    training = payloads.training()
    training["data"][0]["input"]["token_ids"] = [1, 2**70, 3]
    await _refused_once(caller, "forward", training, "payload.data.0.input.token_ids.1")


@pytest.mark.parametrize("field", ["max_tokens", "top_k"])
async def test_sampling_params_beyond_64_bits_are_refused(caller: Caller, payloads: Payloads, field: str) -> None:
    run_id = await caller.open_run()
    sampler_id = await caller.open_sampler(run_id)
    payload = payloads.sample()
    payload["sampling_params"][field] = 2**70
    answer = await caller.post(run_id, 1, "sample", payload, sampler=sampler_id)
    assert (answer.status_code, answer.json()["error"]["details"]["path"]) == (422, f"payload.sampling_params.{field}")


async def test_a_seq_id_beyond_64_bits_is_refused(caller: Caller) -> None:
    answer = await caller.post(await caller.open_run(), 2**64, "save_state", {})
    assert (answer.status_code, answer.json()["error"]["details"]["path"]) == (422, "seq_id")


async def test_a_long_tensor_of_wrong_numbers_is_refused_at_its_first(caller: Caller, payloads: Payloads) -> None:
    targets = {"dtype": "int64", "shape": [100_000], "values": [0.5] * 100_000}
    await _refused_once(caller, "forward_backward", payloads.training(target_tokens=targets), _TARGETS)


async def _refused_once(caller: Caller, kind: str, payload: dict[str, Any], path: str) -> None:
    answer = await caller.post(await caller.open_run(), 0, kind, payload)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (422, "invalid_request")
    assert (error["details"]["path"], error["details"]["error_count"]) == (path, 1)
