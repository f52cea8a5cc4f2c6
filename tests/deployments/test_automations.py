"""What the Prefect server does by itself: its messages are received, and a run whose machine is gone is Crashed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from uuid import UUID, uuid4

import psutil
import pytest
from prefect.blocks.notifications import CustomWebhookNotificationBlock
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import StateType
from prefect.events.schemas.automations import Automation
from prefect.states import Completed, Crashed, Failed, Paused, Running, State

from cli.app import run_command
from deployments.automations import automate, zombies
from gateway.launch import GatewayProcess
from tasks.verdicts import publish_verdicts
from whitney.labels import FLOW_RUN
from whitney.lifecycle import LifecycleClient, Verdict
from whitney.settings import WhitneySettings

PATIENCE_S = 60.0
ENDLESS = """
algorithm = "sft"
cycles = 100000
batch_size = 4
save_every = 1000
[model]
name = "tiny"
[evaluation]
enabled = false
"""


class Receiver:
    """A web hook, as a chat has one: keeps what it is sent."""

    def __init__(self) -> None:
        self.messages: list[dict[str, str]] = []
        messages = self.messages

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                messages.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Not on the terminal."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"

    def wait_for(self, words: str) -> dict[str, str]:
        """The first message whose subject has these words."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            for message in tuple(self.messages):
                if words in message["subject"]:
                    return message
            time.sleep(0.1)
        raise AssertionError(f"no message with {words!r} in {self.messages}")


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    thread = Thread(target=receiver.server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield receiver
    receiver.server.shutdown()
    receiver.server.server_close()
    thread.join()


@pytest.fixture
def api(prefect_server: str) -> Iterator[SyncPrefectClient]:
    """The server; what was automated on it is gone afterwards: it is not this test's alone."""
    with get_client(sync_client=True) as client:
        yield client
        for automation in client.read_automations():
            if automation.name.startswith("Whitney: "):
                client.delete_automation(automation.id)


def notified(receiver: Receiver) -> str:
    """A notification block that posts to the receiver, as TYPE/NAME."""
    name = f"hook-{uuid4().hex[:8]}"
    message = {"subject": "{{subject}}", "body": "{{body}}"}
    CustomWebhookNotificationBlock(name=name, url=receiver.url, json_data=message).save(name, _sync=True)
    return f"custom-webhook/{name}"


def test_a_person_is_told_of_runs_that_fail_finish_or_wait_and_of_sessions_that_stay_open(
    api: SyncPrefectClient, endpoint: GatewayProcess, receiver: Receiver, capsys: pytest.CaptureFixture[str]
) -> None:
    notify = notified(receiver)
    assert run_command(["deploy", "--notify", notify]) == 0
    assert run_command(["deploy"]) == 0
    again = [line for line in capsys.readouterr().out.splitlines() if line.startswith("automation")][-5:]
    assert all(line.endswith(("unchanged", "unchanged (enabled)")) for line in again), again

    def run(flow: str, name: str, *states: State[object]) -> UUID:
        deployment = api.read_deployment_by_name(flow)
        flow_run = api.create_flow_run_from_deployment(deployment.id, name=name)
        for state in (Running(), *states):
            api.set_flow_run_state(flow_run.id, state, force=True)
        return flow_run.id

    failed = run("grpo/nightly", "burnt", Failed(message="the data are gone"))
    run("reap/reap", "cleaned", Completed())
    run("sft/weekly", "asking", Paused(name="Suspended"), Crashed(message="lost"), Completed(name="Skipped"))
    message = receiver.wait_for("burnt (grpo) is Failed")
    assert message["body"].startswith("the data are gone\n")
    assert message["body"].endswith(str(failed)), "its page; the id, where a server does not know its UI's address"
    for ended in ("is Suspended", "is Crashed", "is Skipped"):
        receiver.wait_for(f"asking (sft) {ended}")
    publish_verdicts(str(failed), [Verdict("s-1", False, {}, 0.0, "COULD NOT CLOSE s-1: still billing (503)")])
    message = receiver.wait_for("session s-1 could not be closed")
    assert message["body"] == "COULD NOT CLOSE s-1: still billing (503)"
    assert len(receiver.messages) == 5, "the reaper's own runs end in silence"


def test_of_two_deploys_at_once_one_automation_of_a_name_is_left(
    api: SyncPrefectClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, real = zombies(), SyncPrefectClient.read_automations_by_name
    automate(api, wanted)
    (first,) = api.read_automations_by_name(wanted.name)
    found: list[list[Automation]] = []

    def read(self: SyncPrefectClient, name: str) -> list[Automation]:
        found.append(real(self, name) if found else [])  # the other one had looked before there was any
        return found[-1]

    monkeypatch.setattr(SyncPrefectClient, "read_automations_by_name", read)
    assert automate(api, wanted).verb == "created"
    two, (left,) = found[1], api.read_automations_by_name(wanted.name)
    assert len(two) == 2
    assert first.id in {one.id for one in two}
    assert left.id == min(one.id for one in two), "the one that the other deploy leaves, too"


@pytest.mark.slow
def test_a_run_whose_machine_is_gone_is_crashed(
    api: SyncPrefectClient, endpoint: GatewayProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("endless.toml").write_text(ENDLESS)
    name = f"endless-{uuid4().hex[:8]}"
    assert run_command(["deploy", "endless.toml", "--name", name]) == 0
    automate(api, zombies(timedelta(seconds=15)))  # less than its pause: it is killed soon after its first heartbeat
    flow_run = api.create_flow_run_from_deployment(api.read_deployment_by_name(f"sft/{name}").id)
    command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", "whitney", "--run-once"]
    environment = os.environ | {"PREFECT_API_URL": str(api.api_url)}
    worker = psutil.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        state_becomes(api, flow_run.id, StateType.RUNNING)
        session_of(flow_run.id)
    finally:
        for process in (worker, *worker.children(recursive=True)):  # the worker first: it must not see its run die
            process.kill()
        worker.wait()
    state_becomes(api, flow_run.id, StateType.RUNNING)
    crashed = state_becomes(api, flow_run.id, StateType.CRASHED)
    assert crashed.message == "No heartbeat for 15 s: the process is gone. Retry goes on from the last saved block."
    assert run_command(["reap", "--flow-run", str(flow_run.id)]) == 0
    assert " closed" in capsys.readouterr().out, "what it left open"


def state_becomes(api: SyncPrefectClient, flow_run_id: UUID, wanted: StateType) -> State[object]:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        state = api.read_flow_run(flow_run_id).state
        if state is not None and state.type == wanted:
            return state
        time.sleep(0.1)
    raise AssertionError(f"{flow_run_id} did not become {wanted}: {state}")


def session_of(flow_run_id: UUID) -> None:
    """Return once it has one; its first heartbeat went off a while before."""
    deadline = time.monotonic() + PATIENCE_S
    with LifecycleClient(WhitneySettings(), deadline_s=PATIENCE_S) as whitney:
        while not any(session.labels.get(FLOW_RUN) == str(flow_run_id) for session in whitney.open_sessions()):
            assert time.monotonic() < deadline, "no session"
            time.sleep(0.1)
