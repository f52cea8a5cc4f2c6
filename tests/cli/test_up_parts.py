"""What `whitney up` is made of, without its servers: refusals, notices, parts that die, processes that lose theirs."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.states import Cancelling
from prefect.workers.process import ProcessJobConfiguration, ProcessWorker, ProcessWorkerResult

import cli.local_extra
import cli.up_keeper
from cli import up_notice
from cli.app import run_command
from cli.failures import CommandFailedError
from cli.orderly_worker import OrderlyWorker, why_not_here
from cli.prefect_api import running_up
from cli.prefect_server import PrefectServerError, prefect_server, project_server_environment
from cli.up_keeper import RESTARTS, Kept, keep
from cli.up_notice import RunningUp
from cli.up_parts import Part, Process
from cli.worker import CLOSING_S, HOOKS_S
from flows.closing import DEADLINE_S
from tasks.user_modules import OURS, ROOT


@pytest.fixture
def unconfigured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder, in which nothing is named and nothing runs."""
    from prefect.settings import PREFECT_API_URL, temporary_settings

    monkeypatch.chdir(tmp_path)
    for name in ("WHITNEY_BASE_URL", "WHITNEY_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WHITNEY_DATA_DIR", str(tmp_path / "nobody"))
    with temporary_settings({PREFECT_API_URL: None}):
        yield tmp_path


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run_command(arguments) == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["up", "--limit", "0"], "--limit 0: must be at least 1"),
        (["up", "--port", "70000"], "--port 70000: a port is a number from 0 to 65535"),
        (["up", "--model", "llama-9"], "llama-9"),
        (["worker", "--limit", "0"], "--limit 0: must be at least 1"),
        (["worker"], "no Prefect server: start one with `whitney up`"),
    ],
    ids=["up-limit", "up-port", "up-model", "worker-limit", "worker-server"],
)
def test_what_cannot_be_is_refused_in_a_line_and_nothing_is_started(
    arguments: list[str], told: str, unconfigured: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(capsys, *arguments)
    assert told in said
    assert "Traceback" not in said
    assert running_up() is None


def test_a_port_that_is_taken_is_named_with_what_to_do(unconfigured: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        for flag in ("--port", "--gateway-port"):
            assert f"{flag} {port}: another program listens there; stop it" in refused(capsys, "up", flag, str(port))


def test_a_prefect_api_that_is_named_has_to_answer_and_leaves_no_port_to_choose(
    unconfigured: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from prefect.settings import PREFECT_API_URL, temporary_settings

    with temporary_settings({PREFECT_API_URL: "http://me:secret@127.0.0.1:9/api"}):
        assert "Prefect at http://127.0.0.1:9/api does not answer" in refused(capsys, "up")
        assert "leave one out" in refused(capsys, "up", "--port", "4201")
        assert "Prefect at http://127.0.0.1:9/api does not answer" in refused(capsys, "worker")


def test_without_the_local_extra_it_says_how_to_install_it(
    unconfigured: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli.local_extra, "MODULES", ("a_module_nobody_has",))
    assert 'pip install "whitney-pipelines[local]"' in refused(capsys, "up")


def test_a_notice_counts_only_while_its_process_lives_and_its_server_is_the_same(unconfigured: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    for notice in (
        RunningUp(ended.pid, "http://127.0.0.1:9/api", None),
        RunningUp(os.getpid(), "http://127.0.0.1:9/api", str(unconfigured / ".whitney" / "prefect")),
    ):
        notice.write()
        assert running_up() is None
    named = RunningUp(os.getpid(), "https://prefect.example/api", None)
    replace(named, prefect_api_url="https://me:secret@prefect.example/api").write()
    assert running_up() == named, "the file holds no password"
    named.take_down()
    assert not up_notice.NOTICE.exists()
    up_notice.NOTICE.write_text(json.dumps({"pid": "?"}))
    assert running_up() is None


def test_two_servers_never_share_a_database(unconfigured: Path) -> None:
    from filelock import FileLock

    home = unconfigured / "home"
    home.mkdir()
    environment = project_server_environment(home, 1)
    with (
        FileLock(home / "server.lock"),
        pytest.raises(PrefectServerError, match=f"another command runs a Prefect server on {home}"),
        prefect_server(environment, home / "server.log"),
    ):
        pass


def test_the_worker_gives_a_run_longer_than_it_needs_to_close_its_session() -> None:
    assert min(CLOSING_S, HOOKS_S) > DEADLINE_S


def part(*codes: str) -> Part:
    """Its process runs the first of these programs, then, started again, the second …"""
    programs = iter(codes)

    @contextmanager
    def spawn() -> Iterator[Process]:
        process = subprocess.Popen([sys.executable, "-c", next(programs)])
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    return Part("the part", Path("part.log"), spawn, lambda process: None)


LASTS = "import time; time.sleep(60)"


def test_a_part_that_dies_is_started_again_and_the_terminal_is_told() -> None:
    said: list[str] = []
    kept = Kept(part("raise SystemExit(3)", LASTS), said.append)
    kept.spawn()
    first = cast("Process", kept._process)
    first.wait()
    kept.look()
    kept.look()
    assert said == [
        "Warning: the part has ended with code 3; starting it again (its log: part.log)",
        "The part is up again",
    ]
    assert kept.pid != first.pid
    kept.close()


def test_a_part_that_dies_again_and_again_ends_everything_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli.up_keeper, "LOOK_EVERY_S", 0.01)
    said: list[str] = []
    kept = Kept(part(*["raise SystemExit(3)"] * (RESTARTS + 1)), said.append)
    kept.spawn()
    with pytest.raises(CommandFailedError, match="the part has ended with code 3, once more after 3 restarts"):
        keep([kept])
    assert sum("starting it again" in line for line in said) == RESTARTS


@pytest.mark.skipif(sys.platform != "linux", reason="orphans are adopted on Linux only")
def test_a_process_that_has_lost_its_parent_is_ended_too() -> None:
    """In a process of its own: the whole of pytest would become the orphans' parent."""
    program = textwrap.dedent("""
        import subprocess, sys
        from cli.up_keeper import adopt_orphans, end_orphans, orphans
        adopt_orphans()
        lasts = "import time; time.sleep(60)"
        parent = f"import subprocess as s; print(s.Popen([{sys.executable!r}, '-c', {lasts!r}], stdout=s.DEVNULL).pid)"
        grandchild = int(subprocess.run([sys.executable, "-c", parent], stdout=subprocess.PIPE).stdout)
        assert orphans([]) == {grandchild}, orphans([])
        end_orphans([])
        assert orphans([]) == set()
        print(grandchild)
    """)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not Path(f"/proc/{done.stdout.strip()}").exists()


def deployment(entrypoint: str, folder: Path | str | None, **more: Any) -> Any:
    steps = [] if folder is None else [{"prefect.deployments.steps.set_working_directory": {"directory": str(folder)}}]
    fields = {"name": "mine", "entrypoint": entrypoint, "pull_steps": steps, "parameters": {"config": {}}} | more
    return SimpleNamespace(**fields)


def test_a_run_is_started_where_its_folder_and_its_flow_are(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("")
    assert why_not_here(deployment("mine.py:train", tmp_path), None) is None
    assert why_not_here(deployment("flows.grpo.grpo", tmp_path), None) is None
    assert why_not_here(deployment("flows.grpo.grpo", None), tmp_path) is None
    assert why_not_here(deployment("flows.reap.reap", None, parameters={}), None) is None
    fetched = [{"prefect.deployments.steps.git_clone": {"repository": "https://example.org/x.git"}}]
    assert why_not_here(deployment("x.py:f", None, pull_steps=fetched), None) is None


@pytest.mark.parametrize(
    ("entrypoint", "folder", "told"),
    [
        ("flows.grpo.grpo", "/nowhere", "works in /nowhere, and this machine has no such folder"),
        ("flows/gone.py:train", "here", "there is no "),
        ("a_package_nobody_has.train", "here", "there is no package 'a_package_nobody_has'"),
        ("flows.grpo.grpo", None, "names no folder to work in"),
    ],
    ids=["folder", "file", "package", "none"],
)
def test_where_they_are_not_the_reason_is_told(entrypoint: str, folder: str | None, told: str, tmp_path: Path) -> None:
    why = why_not_here(deployment(entrypoint, tmp_path if folder == "here" else folder), None)
    assert why is not None
    assert told in why
    assert "whitney deploy" in why


def test_a_file_of_the_users_that_would_be_run_in_place_of_ours_is_named_and_a_folder_of_weights_is_no_such_file(
    tmp_path: Path,
) -> None:
    (tmp_path / "models").mkdir()
    assert why_not_here(deployment("flows.grpo.grpo", tmp_path), None) is None
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows" / "__init__.py").write_text("raise RuntimeError\n")
    why = why_not_here(deployment("flows.grpo.grpo", tmp_path), None)
    assert why is not None
    assert f"{tmp_path / 'flows'} has the name of a package of this project" in why
    assert "rename it" in why
    assert why_not_here(deployment("theirs.train", tmp_path), None) != why, "their own flows are theirs to look after"
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    assert {name.partition(".")[0] for name in packages} == set(OURS)


async def test_a_run_that_is_cancelled_while_its_process_starts_is_cancelled_once_that_has_ended(
    prefect_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ends_at_once(self: ProcessWorker, *_: object) -> ProcessWorkerResult:
        return ProcessWorkerResult(status_code=1, identifier="a-process")

    monkeypatch.setattr(ProcessWorker, "run", ends_at_once)
    monkeypatch.setattr("cli.orderly_worker.CANCELLING_S", 1)
    async with get_client() as api, OrderlyWorker(work_pool_name="nobodys") as worker:
        flow_run = await api.create_flow_run(flow(nothing), state=Cancelling())
        await worker.run(flow_run, ProcessJobConfiguration())
        state = (await api.read_flow_run(flow_run.id)).state
    assert state is not None
    assert state.is_cancelled()


def nothing() -> None:
    """A flow."""


def test_ctrl_c_on_a_worker_that_has_no_run_is_a_clean_end(
    prefect_server: str, unconfigured: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = subprocess.Popen(
        [sys.executable, "-m", "cli", "worker", "--pool", "nobodys", "--name", "short"],
        env=os.environ | {"PREFECT_API_URL": prefect_server},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert worker.stdout is not None
    assert "whitney worker is ready: Worker 'short' started!" in worker.stdout.readline()
    worker.send_signal(signal.SIGINT)
    assert worker.wait(30) == 0
    assert worker.stdout.read().splitlines()[-1] == "stopped"
    worker.stdout.close()
