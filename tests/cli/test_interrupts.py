"""Signals to a real `whitney run`, in a process of its own, while its session takes time to close."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.launch import GatewayProcess, start_gateway
from whitney.client import WhitneyClient
from whitney.settings import WhitneySettings

CONFIG = """
algorithm = "grpo"
cycles = 500
groups_per_cycle = 1
group_size = 2
[model]
name = "tiny"
[sampling]
max_tokens = 4
[[rewards]]
function = "length"
arguments = { target = 6 }
[evaluation]
enabled = false
"""
# Long enough for every further signal of a test; the third does not wait for it.
SLOW_CLOSING = {"faults": [{"action": "slow_answer", "route": "cancel_run", "delay_s": 3, "times": 100}]}
CLOSING, STILL_CLOSING, LEFT = "interrupted: closing", "still closing the session", "whitney: left session"


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[GatewayProcess]:
    script = tmp_path / "faults.json"
    script.write_text(json.dumps(SLOW_CLOSING))
    with start_gateway(tmp_path / "gateway", models=("tiny",), extra_args=["--faults", str(script)]) as started:
        yield started


@pytest.fixture
def run(gateway: GatewayProcess, prefect_server: str, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    (tmp_path / "tiny.toml").write_text(CONFIG)
    variables = {
        "PREFECT_API_URL": prefect_server,
        "PREFECT_HOME": str(tmp_path / "prefect"),
        "WHITNEY_BASE_URL": gateway.base_url,
        "WHITNEY_API_KEY": gateway.api_key,
    }
    command = [sys.executable, "-m", "cli", "run", "tiny.toml", "--name", "r"]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        env=os.environ | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        yield process
        process.kill()


def read_until(process: subprocess.Popen[str], part: str) -> str:
    """The first line that has `part` in it."""
    assert process.stdout is not None
    seen = []
    for line in process.stdout:
        seen.append(line)
        if part in line:
            return line
    raise AssertionError(f"no line with {part!r} in:\n{''.join(seen)}")


def status_of(session_id: str, gateway: GatewayProcess) -> str:
    async def ask() -> str:
        async with WhitneyClient(WhitneySettings(base_url=gateway.base_url, api_key=gateway.api_key)) as client:
            return (await client.get_session(session_id)).status

    return asyncio.run(ask())


def session_in(line: str) -> str:
    return line.split()[1].rstrip(",")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_waits_for_the_session_to_close_and_the_process_ends(
    number: signal.Signals, run: subprocess.Popen[str], gateway: GatewayProcess
) -> None:
    session_id = session_in(read_until(run, "Session "))
    run.send_signal(number)
    read_until(run, CLOSING)
    run.send_signal(number)
    read_until(run, STILL_CLOSING)
    read_until(run, f"session {session_id} closed")
    assert run.wait(60) == 130
    assert status_of(session_id, gateway) == "closed"


def test_a_third_signal_leaves_at_once_and_names_the_session(
    run: subprocess.Popen[str], gateway: GatewayProcess
) -> None:
    session_id = session_in(read_until(run, "Session "))
    run.send_signal(signal.SIGTERM)
    read_until(run, CLOSING)
    run.send_signal(signal.SIGINT)
    read_until(run, STILL_CLOSING)
    run.send_signal(signal.SIGTERM)
    assert f"whitney reap --session {session_id}" in read_until(run, LEFT)
    assert run.wait(60) == 130
    assert status_of(session_id, gateway) == "open"
