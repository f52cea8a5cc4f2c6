"""Signals to a real `whitney run`, in a process of its own, while its session takes time to close."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
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
# Once it samples for the third time, the run takes seconds to be cancelled: longer than two presses lie apart.
SLOW_CLOSING = [{"action": "slow_operation", "kind": "sample", "nth": 3, "delay_s": 4}]
PATIENCE_S = 120.0
CLOSING, LEFT = "interrupted: cancelling", "whitney: ended at once"
RESUME = "to go on: `whitney run --resume runs/r`"


@pytest.fixture(scope="module")
def one_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with start_gateway(tmp_path_factory.mktemp("slow-gateway"), faults=SLOW_CLOSING) as started:
        yield started


@pytest.fixture
def gateway(one_gateway: GatewayProcess) -> GatewayProcess:
    """The gateway with its faults still to come."""
    one_gateway.read_faults_again()
    return one_gateway


@pytest.fixture
def environment(gateway: GatewayProcess, prefect_server: str, tmp_path: Path) -> dict[str, str]:
    (tmp_path / "tiny.toml").write_text(CONFIG)
    return os.environ | {
        "PREFECT_API_URL": prefect_server,
        "PREFECT_HOME": str(tmp_path / "prefect"),
        "WHITNEY_BASE_URL": gateway.base_url,
        "WHITNEY_API_KEY": gateway.api_key,
    }


@pytest.fixture
def run(environment: dict[str, str], tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A run that is about to be slow: it has trained two cycles, and samples for the third."""
    with subprocess.Popen(
        [sys.executable, "-m", "cli", "run", "tiny.toml", "--name", "r"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        yield process
        process.kill()


def whitney(*arguments: str, environment: dict[str, str], folder: Path) -> str:
    """What a command says that must succeed."""
    command = [sys.executable, "-m", "cli", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


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


def samples_slowly(run: subprocess.Popen[str], gateway: GatewayProcess) -> str:
    """Wait until the slow operation runs; the id of the session."""
    line = read_until(run, "Session ")
    run_id = line.split()[-1]
    third = "SELECT 1 FROM operations WHERE run_id = ? AND kind = 'sample' AND status = 'running' AND 2 = "
    third += "(SELECT count(*) FROM operations WHERE run_id = ? AND kind = 'sample' AND status = 'succeeded')"
    deadline = time.monotonic() + PATIENCE_S
    with sqlite3.connect(gateway.data_dir / "ledger.sqlite") as ledger:
        while not ledger.execute(third, (run_id, run_id)).fetchone():
            assert time.monotonic() < deadline
            time.sleep(0.02)
    return session_in(line)


UNDER_NOHUP = pytest.mark.skipif(
    signal.getsignal(signal.SIGHUP) == signal.SIG_IGN, reason="pytest runs under nohup, and what it starts with it"
)


@pytest.mark.parametrize("number", [pytest.param(signal.SIGHUP, marks=UNDER_NOHUP), signal.SIGINT])
def test_one_press_closes_everything_and_shows_how_far_it_has_come_though_it_is_delivered_twice(
    number: signal.Signals,
    run: subprocess.Popen[str],
    gateway: GatewayProcess,
    environment: dict[str, str],
    tmp_path: Path,
) -> None:
    session_id = samples_slowly(run, gateway)
    run.send_signal(number)
    read_until(run, CLOSING)
    run.send_signal(number)  # by whatever started this one: milliseconds later
    read_until(run, "cancelling run run_")
    assert re.search(r": cancelling, \d+ s", read_until(run, "waiting for run run_"))
    assert f"session {session_id} closed" in read_until(run, "terminal after")
    assert read_until(run, "to go on").strip() == RESUME
    assert run.wait(60) == 130
    assert status_of(session_id, gateway) == "closed"
    if number == signal.SIGINT:
        goes_on_to_its_end_where_that_is_drawn_nearer(environment, tmp_path)


def goes_on_to_its_end_where_that_is_drawn_nearer(environment: dict[str, str], folder: Path) -> None:
    nearer = ("--set", "cycles=3", "--allow-drift")
    shown = whitney("run", "--resume", "r", *nearer, environment=environment, folder=folder)
    assert "  cycles: 500 → 3" in shown
    assert "going on after cycle 2" in shown
    summary = json.loads((folder / "runs" / "r" / "summary.json").read_text())
    assert (summary["attempt"], summary["cycles"], summary["open_sessions"]) == (2, 3, 0)
    recorded = json.loads((folder / "runs" / "r" / "config.json").read_text())
    assert recorded["drift"] == [{"attempt": 2, "changes": {"config.cycles": [500, 3]}}]


def test_a_second_press_ends_it_at_once_and_says_what_closes_the_session_and_how_to_go_on(
    run: subprocess.Popen[str], gateway: GatewayProcess, environment: dict[str, str], tmp_path: Path
) -> None:
    session_id = samples_slowly(run, gateway)
    run.send_signal(signal.SIGTERM)
    read_until(run, "waiting for run run_")  # a second later: no echo of the first press
    run.send_signal(signal.SIGINT)
    read_until(run, LEFT)
    command = f"whitney reap --session {session_id}"
    assert f"`{command}` closes it" in read_until(run, session_id)
    assert read_until(run, "to go on").strip() == RESUME
    assert run.wait(60) == 130
    assert status_of(session_id, gateway) == "open"
    assert f"session {session_id} closed" in whitney(*command.split()[1:], environment=environment, folder=tmp_path)
    assert status_of(session_id, gateway) == "closed"
