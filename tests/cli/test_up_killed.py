"""`whitney up`, its parts and its terminal killed in the midst of a run: what ends, what is closed, what goes on."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest
from upped import Upped, no_process_is_left, statuses_in_the_ledger, whitney_up, write_training

from cli.up_left import WORDS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

RETRY = {"state": {"type": "SCHEDULED", "name": "AwaitingRetry", "message": "Retry from the UI"}, "force": True}


def train(up: Upped) -> str:
    """A run that has opened a session, and would last for minutes; its id."""
    write_training(up.folder, "long", cycles=2000)
    deployed = up.whitney("deploy", "long.toml", "--set", 'session_limit="whitney-sessions"')
    assert deployed.returncode == 0, deployed.stdout + deployed.stderr
    run = up.press_run("sft/long")
    up.at_work(run)
    return run


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Upped]:
    with whitney_up(tmp_path) as up:
        yield up


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=["SIGTERM", "SIGHUP"])
def test_whoever_ends_it_the_run_closes_its_session_and_no_process_is_left(up: Upped, number: int) -> None:
    train(up)
    up.process.send_signal(number)
    assert up.process.wait(90) == 0, up.said()
    no_process_is_left(up)
    assert statuses_in_the_ledger(up.folder) == ["closed"]


def test_a_second_ctrl_c_ends_it_at_once_and_leaves_no_process_either(up: Upped) -> None:
    train(up)
    (run,) = up.flow_processes()
    run.suspend()  # it cannot close anything: the first Ctrl-C would wait
    up.process.send_signal(signal.SIGINT)
    up.until(lambda: "Stopping" in up.said() or None, "it to stop")
    with pytest.raises(psutil.TimeoutExpired):
        psutil.Process(up.process.pid).wait(1)
    up.process.send_signal(signal.SIGINT)
    assert up.process.wait(10) == 130
    no_process_is_left(up)
    assert "ended at once" in up.said()


def test_killed_it_leaves_no_process_and_the_next_one_closes_the_session_and_retry_goes_on(up: Upped) -> None:
    run = train(up)
    for process in (up.process, *up.flow_processes()):  # the run shall not be able to say how it ends
        process.kill()
    up.process.wait()
    no_process_is_left(up)
    with whitney_up(up.folder) as again:
        assert again.state(run) | {"type": "CRASHED", "message": WORDS} == again.state(run)
        assert "ok   session limit: whitney-sessions: 2 at once, 0 taken" in again.whitney("doctor").stdout
        assert not again.sessions(run)
        url = f"{again.notice()['prefect_api_url']}/flow_runs/{run}/set_state"
        httpx.post(url, json=RETRY, timeout=30).raise_for_status()
        again.at_work(run)


def test_each_part_that_is_killed_is_started_again_and_what_is_due_is_trained_after(up: Upped) -> None:
    run = train(up)
    for name, module in {"gateway": "gateway", "worker": "cli worker", "Prefect server": "prefect server"}.items():
        (part,) = [
            child for child in psutil.Process(up.process.pid).children() if f"-m {module}" in " ".join(child.cmdline())
        ]
        part.kill()
        up.until(lambda name=name: f"he {name} is up again" in up.said() or None, f"the {name}")
        if name == "gateway":
            assert up.ended(run)["type"] in {"FAILED", "CRASHED"}
    up.at_work(up.press_run("sft/long"))
    assert "Prefect server is up again" in up.said()
