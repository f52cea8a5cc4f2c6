"""Scripted faults, as a client on a real connection sees them, and what the gateway still holds afterwards."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from gateway.app import build_app
from gateway.faults import CRASH_EXIT_CODE, Fault, Faults
from gateway.launch import GatewayProcess, LaunchError, start_gateway
from gateway.serve import GatewayServer, listen
from whitney.routes import PREFIX

NO_DELAYS = ("--delays", '{"sample": 0, "default": 0}')
KEY = "key-of-the-tests"


def _matches(faults: Faults, count: int, **facts: Any) -> list[bool]:
    facts = {"route": "get_run", "kind": None, "seq_id": None} | facts
    return [faults.fire(("status",), **facts) is not None for _ in range(count)]


def test_a_fault_fires_from_its_nth_match_as_often_as_it_says() -> None:
    faults = Faults([Fault(action="status", route="get_run", nth=2, times=2)])
    assert _matches(faults, 1, route="get_session") == [False]
    assert _matches(faults, 5) == [False, True, True, False, False]


def test_a_fault_matches_what_it_names_and_nothing_else() -> None:
    faults = Faults([Fault(action="status", kind="optim_step", seq_id=3, times=9)])
    assert _matches(faults, 1, kind="optim_step", seq_id=2) == [False]
    assert _matches(faults, 1, kind="save_state", seq_id=3) == [False]
    assert _matches(faults, 1, kind="optim_step", seq_id=3) == [True]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ({"action": "explode"}, "action"),
        ({"action": "status", "route": "get_rum"}, "unknown route 'get_rum'; known: .*get_run"),
        ({"action": "crash", "route": "get_run"}, "crash happens on execution"),
        ({"action": "reset", "run": 0}, "reset happens on HTTP"),
        ({"action": "drop_loss_config", "route": "run_operation"}, "drop_loss_config happens on execution"),
        ({"action": "status", "colour": 1}, "colour"),
    ],
)
def test_a_wrong_line_of_a_script_is_named(tmp_path: Path, line: Any, says: str) -> None:
    script = tmp_path / "faults.json"
    script.write_text(json.dumps({"faults": [line]}))
    with pytest.raises(ValueError, match=says):
        Faults.load(script)


@asynccontextmanager
async def _served(caller: Any) -> AsyncIterator[httpx.AsyncClient]:
    """The in-process gateway of a test behind its real server, so that connections can break."""
    listening = asyncio.Event()
    with listen("127.0.0.1", 0) as listener:
        app = build_app(caller.gateway, KEY)
        server = GatewayServer(app, caller.gateway, listening.set, faulty=True)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        await asyncio.wait_for(listening.wait(), 10)
        base_url = f"http://127.0.0.1:{listener.getsockname()[1]}{PREFIX}"
        headers = {"authorization": f"Bearer {KEY}"}
        async with httpx.AsyncClient(base_url=base_url, headers=headers, trust_env=False) as http:
            yield http
        server.should_exit = True
        await serving


async def test_a_dropped_answer_leaves_the_operation_on_record(start: Any, payloads: Any) -> None:
    faults = Faults([Fault(action="drop_answer", route="run_operation", kind="forward_backward")])
    async with start(faults=faults) as caller, _served(caller) as http:
        run_id = await caller.open_run()
        body = {"seq_id": 0, "kind": "forward_backward", "payload": payloads.training()}
        with pytest.raises(httpx.TransportError):
            await http.post(f"/runs/{run_id}/operations", json=body)
        assert (await caller.wait(run_id, 0))["status"] == "succeeded"
        again = await http.post(f"/runs/{run_id}/operations", json=body)
        assert again.json()["status"] == "succeeded"
        assert (await caller.get(f"/runs/{run_id}"))["usage"]["operations"] == {"forward_backward": 1}


async def test_a_reset_happens_before_anything_is_on_record(start: Any) -> None:
    async with start(faults=Faults([Fault(action="reset", route="create_session")])) as caller, _served(caller) as http:
        body = {"create_key": uuid4().hex}
        with pytest.raises(httpx.TransportError):
            await http.post("/sessions", json=body)
        assert (await caller.get("/sessions"))["sessions"] == []
        assert (await http.post("/sessions", json=body)).status_code == 200


async def test_scripted_statuses_carry_retry_after_and_are_retryable(start: Any) -> None:
    script = [
        Fault(action="status", status=429, retry_after_s=1.5, route="capabilities"),
        Fault(action="status", status=503, route="capabilities"),
    ]
    async with start(faults=Faults(script)) as caller:
        first, second, third = [await caller.send("GET", "/capabilities") for _ in range(3)]
        assert (first.status_code, first.headers["retry-after"]) == (429, "1.5")
        assert second.status_code == 503
        assert second.json()["error"]["retryable"] is True
        assert third.status_code == 200


async def test_a_slow_operation_is_slow_alone(start: Any) -> None:
    faults = Faults([Fault(action="slow_operation", run=1, seq_id=0, delay_s=0.3)])
    async with start(faults=faults) as caller:
        quick, slow = await caller.open_run(), await caller.open_run()
        await caller.do(quick, 0, "save_state", {})
        await caller.post(slow, 0, "save_state", {})
        assert (await caller.get(f"/runs/{slow}/operations/0", wait_s=0.05))["status"] == "running"
        assert (await caller.wait(slow, 0))["status"] == "succeeded"


async def test_a_dropped_loss_config_is_accepted_and_billed_and_executed_with_the_defaults(
    start: Any, payloads: Any
) -> None:
    faults = Faults([Fault(action="drop_loss_config", run=0, kind="forward_backward", nth=2)])
    config = {"clip_low_threshold": 0.5, "clip_high_threshold": 2.0}
    async with start(faults=faults) as caller:
        run_id = await caller.open_run()
        for seq_id, kind in enumerate(["forward_backward", "forward", "forward_backward", "forward_backward"]):
            payload = payloads.training("ppo", config=config)
            await caller.do(run_id, seq_id, kind, payload)
            again = await caller.post(run_id, seq_id, kind, payload)
            assert again.status_code == 202, "the same body stays the same operation"
        executed = [work.payload["loss_config"] for (work,) in caller.provider.batches]
        default = {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}
        assert executed == [config, config, default, config]


def _write(script: Path, *faults: dict[str, Any]) -> None:
    script.write_text(json.dumps({"faults": list(faults)}))


def test_a_script_that_is_read_again_counts_matches_and_runs_from_the_start(tmp_path: Path) -> None:
    script = tmp_path / "faults.json"
    _write(script, {"action": "status", "nth": 2})
    faults = Faults.load(script)
    assert faults.begin_run() == 0
    assert _matches(faults, 3) == [False, True, False]
    assert faults.read_again(script) == 1
    assert _matches(faults, 3) == [False, True, False]
    _write(script, {"action": "slow_operation", "run": 0})
    faults.read_again(script)
    before, after = 0, faults.begin_run()
    found = [faults.fire(("slow_operation",), run=run, seq_id=0, kind="sample") for run in (before, after)]
    assert [fault is not None for fault in found] == [False, True]


def test_a_running_gateway_reads_its_faults_again_on_sighup(tmp_path: Path) -> None:
    script = tmp_path / "faults.json"
    _write(script)
    with start_gateway(tmp_path, provider="delay", extra_args=[*NO_DELAYS, "--faults", str(script)]) as gateway:
        with _client(gateway) as http:
            assert http.get("/capabilities").status_code == 200
            for _ in range(2):  # the same script again begins again
                _write(script, {"action": "reset", "route": "capabilities"})
                gateway.read_faults_again()
                with pytest.raises(httpx.TransportError):
                    http.get("/capabilities")
                assert http.get("/capabilities").status_code == 200
            _write(script, {"action": "status", "status": 503, "times": 2})
            gateway.read_faults_again()
            assert http.get("/capabilities").status_code == 503
            script.write_text('{"faults": [{"action": "explode"}]}')
            with pytest.raises(LaunchError, match=r"faults\.0\.action"):
                gateway.read_faults_again()
            assert [http.get("/capabilities").status_code for _ in range(2)] == [503, 200]
        assert "scripted faults stay as they were" in gateway.log.read_text()


def _client(gateway: GatewayProcess) -> httpx.Client:
    headers = {"authorization": f"Bearer {gateway.api_key}"}
    return httpx.Client(base_url=gateway.base_url + PREFIX, headers=headers, trust_env=False, timeout=30)


def test_a_crash_at_an_operation_loses_the_run_and_no_result(tmp_path: Path, payloads: Any) -> None:
    script = tmp_path / "faults.json"
    script.write_text(json.dumps({"faults": [{"action": "crash", "run": 0, "seq_id": 1, "when": "after"}]}))
    with start_gateway(tmp_path, provider="delay", extra_args=[*NO_DELAYS, "--faults", str(script)]) as gateway:
        with _client(gateway) as http:
            session_id = http.post("/sessions", json={"create_key": "s"}).json()["session_id"]
            run = {"create_key": "r", "provider": "local", "model": "tiny"}
            run_id = http.post(f"/sessions/{session_id}/runs", json=run).json()["run_id"]
            operations = [("forward_backward", payloads.training()), ("save_state", {}), ("save_state", {})]
            http.post(f"/runs/{run_id}/operations", json={"seq_id": 2, "kind": "save_state", "payload": {}})
            for seq_id, (kind, payload) in enumerate(operations[:2]):
                http.post(f"/runs/{run_id}/operations", json={"seq_id": seq_id, "kind": kind, "payload": payload})
                if seq_id == 0:
                    done = http.get(f"/runs/{run_id}/operations/0", params={"wait_s": 20}).json()
        assert gateway.process.wait(20) == CRASH_EXIT_CODE
    with start_gateway(tmp_path, provider="delay", extra_args=NO_DELAYS) as gateway, _client(gateway) as http:
        found = http.get(f"/sessions/{session_id}").json()
        assert found["status"] == "open"
        assert [(run["status"], run["reason"]) for run in found["runs"]] == [("failed", "run_lost")]
        results = [http.get(f"/runs/{run_id}/operations/{seq_id}").json() for seq_id in range(3)]
        assert [result["status"] for result in results] == ["succeeded", "failed", "cancelled"]
        assert results[0] == done
        assert results[1]["error"]["code"] == "run_lost"
        assert list((tmp_path / "states").iterdir()) == []
        assert http.post(f"/sessions/{session_id}/close").json()["status"] == "closed"
