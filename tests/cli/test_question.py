"""A pipeline that waits for a person, in a terminal: interrupted there, asked again by a resume, and answered."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest
from own_servers import command

from cli.app import run_command
from gateway.launch import GatewayProcess

PIPELINE = """
algorithm = "pipeline"
name = "asking"
[shared]
cycles = 1
batch_size = 2
[shared.model]
name = "tiny"
[shared.evaluation]
samples = 1
max_prompts = 1
[shared.sampling]
max_tokens = 1
[[stages]]
name = "first"
algorithm = "sft"
require = "eval.loss < 0"
on_fail = "pause"
[[stages]]
name = "second"
algorithm = "sft"
"""
PATIENCE_S = 200.0
PROMPT = "Go on? [y/N]"
CTRL_C = b"\x03"


# A process that a terminal can send Ctrl-C to is one whose controlling terminal it is.
TAKES_THE_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
)


def in_terminal(answers: list[tuple[str, bytes]], *arguments: str) -> tuple[int, str]:
    """Run the command on a terminal of its own, and type an answer each time that its word is seen."""
    ours, its = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", TAKES_THE_TERMINAL, *command(*arguments)],
        stdin=its,
        stdout=its,
        stderr=its,
        start_new_session=True,
    )
    os.close(its)
    seen, position, waited_for = "", 0, list(answers)
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if select.select([ours], [], [], 0.2)[0]:
            try:
                seen += os.read(ours, 65536).decode(errors="replace")
            except OSError:  # the other end has closed
                break
        if waited_for and (found := seen.find(waited_for[0][0], position)) >= 0:
            position = found + len(waited_for[0][0])
            os.write(ours, waited_for.pop(0)[1])
    os.close(ours)
    status = process.wait(PATIENCE_S)
    assert not waited_for, seen
    return status, re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen)


@pytest.fixture
def pipeline(endpoint: GatewayProcess, prefect_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PREFECT_API_URL", prefect_server)
    path = tmp_path / "asking.toml"
    path.write_text(PIPELINE)
    return path


def test_a_question_can_be_interrupted_is_asked_again_by_a_resume_and_answered_where_it_is_asked(
    pipeline: Path,
) -> None:
    status, seen = in_terminal([(PROMPT, CTRL_C)], str(pipeline))
    assert status == 130, seen
    assert "first, eval.loss < 0: eval.loss = " in seen.replace("'", "")
    assert "Answer here, or in the Prefect UI: http" in seen
    assert "to go on: `whitney run --resume runs/asking`" in seen
    status, seen = in_terminal([(PROMPT, b"perhaps\n"), ("neither y nor n", b"y\n")], "--resume", "asking")
    assert status == 0, seen
    assert "Stage 1/2 was finished before: first" in seen
    assert seen.index(PROMPT) < seen.index("Going on") < seen.index("Stage 2/2: second (sft)")


@pytest.mark.usefixtures("loggers_as_they_were")
def test_without_a_terminal_it_says_where_it_is_answered_and_how_long_it_waits(
    pipeline: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["run", str(pipeline), "--set", "approval.timeout_hours=0.0003"]) == 1
    shown = capsys.readouterr()
    assert "Gate of first failed, a person is asked: eval.loss = " in shown.out
    assert re.search(r"Waiting up to 0\.0003 h for an answer in the Prefect UI: http\S+/runs/flow-run/", shown.out)
    assert "the run failed: nobody has answered within" in shown.err
    assert "`whitney run --resume runs/asking`" in shown.err
