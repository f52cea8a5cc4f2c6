"""The real engine behind the gateway: what only its own process can show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from gateway.launch import GatewayProcess, start_gateway
from whitney.routes import PREFIX


def _client(gateway: GatewayProcess) -> httpx.Client:
    headers = {"authorization": f"Bearer {gateway.api_key}"}
    return httpx.Client(base_url=gateway.base_url + PREFIX, headers=headers, trust_env=False, timeout=60)


def _open_run(http: httpx.Client, key: str, **fields: Any) -> str:
    session_id = http.post("/sessions", json={"create_key": key}).json()["session_id"]
    body = {"create_key": "r", "provider": "local", "model": "tiny", "lora": {"rank": 4}} | fields
    answer = http.post(f"/sessions/{session_id}/runs", json=body)
    assert answer.status_code == 200, answer.text
    run_id: str = answer.json()["run_id"]
    return run_id


def _do(http: httpx.Client, run_id: str, seq_id: int, kind: str, payload: Any) -> Any:
    answer = http.post(f"/runs/{run_id}/operations", json={"seq_id": seq_id, "kind": kind, "payload": payload})
    assert answer.status_code == 202, answer.text
    return http.get(f"/runs/{run_id}/operations/{seq_id}", params={"wait_s": 30}).json()


def test_an_engine_that_is_killed_fails_its_runs_and_the_next_run_lives(tmp_path: Path, payloads: Any) -> None:
    with start_gateway(tmp_path) as gateway, _client(gateway) as http:
        run_id = _open_run(http, "first")
        state_id = _do(http, run_id, 0, "save_state", {})["result"]["state_id"]
        (engine,) = psutil.Process(gateway.pid).children()
        (abandoned,) = (tmp_path / "scratch").iterdir()
        engine.kill()
        lost = _do(http, run_id, 1, "forward_backward", payloads.training())
        assert (lost["status"], lost["error"]["code"]) == ("failed", "provider_lost")
        assert http.get(f"/runs/{run_id}").json()["reason"] == "provider_lost"
        restored = _open_run(http, "second", initial={"state_id": state_id})
        assert [folder.name for folder in (tmp_path / "scratch").iterdir()] != [abandoned.name]
        assert not abandoned.exists(), "what a killed engine leaves in the way of files stays for ever"
        assert _do(http, restored, 0, "forward_backward", payloads.training())["status"] == "succeeded"
        (engine,) = psutil.Process(gateway.pid).children()
        gateway.kill()
        assert psutil.wait_procs([engine], timeout=20)[1] == [], "an engine outlived its gateway"


def test_the_engine_trains_as_another_provider_with_another_reduction(
    tmp_path: Path, payloads: Any, floats: Any
) -> None:
    options = ["--reduction", "mean", "--dppo-variant", "binary_kl"]
    with start_gateway(tmp_path, provider="modal", extra_args=options) as gateway, _client(gateway) as http:
        (row,) = http.get("/capabilities").json()["rows"]
        assert (row["provider"], row["emulated"], row["loss_reduction"]) == ("modal", True, "mean")
        run_id = _open_run(http, "s", provider="modal")
        result = _do(http, run_id, 0, "forward_backward", payloads.training())["result"]
        logprobs = result["loss_outputs"][0]["logprobs"]["values"]
        assert result["metrics"]["loss"] == pytest.approx(-(logprobs[1] + logprobs[2]) / 2, rel=1e-5)
        assert _do(http, run_id, 1, "optim_step", payloads.optim_step)["result"]["metrics"]["grad_norm"] > 0
        # Total variation is never over 1, so that only the divergence can mask here.
        inputs = {"logprobs": floats(0, -0.1, -0.1), "advantages": floats(0, -1, -1)}
        dppo = payloads.training("dppo", config={"delta_low": 1.0}, **inputs)
        assert _do(http, run_id, 2, "forward", dppo)["result"]["metrics"]["clip_fraction"] == 1
