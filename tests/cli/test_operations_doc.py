"""docs/operations.md, typed by a newcomer: its `sh` and `python` blocks in one folder, in the order they are given."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from typist import COMMANDS, Said, Typist
from upped import Upped, environment_of, no_process_is_left, statuses_in_the_ledger, whitney_up

from cli.app import run_command

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "operations.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
CONSOLE = "".join(text for kind, text in BLOCKS if kind == "console")
ENDS = {"cancel": "CANCELLED", "retry": "COMPLETED"}
"""What a person sees on the run's page before the next command."""
NOBODY = "http://127.0.0.1:9/"
UUID_PATTERN = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"


class Newcomer:
    """Somebody at two terminals."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.up: Upped | None = None
        self.run_id = "RUN_ID"
        self._stack = stack
        self._environment: dict[str, str] = {}
        self._typist: Typist | None = None

    def type(self, kind: str, text: str) -> None:
        """One block."""
        if kind == "toml":
            comment, content = text.split("\n", 1)
            (self.folder / comment.removeprefix("# ")).write_text(content)
        elif kind == "python":
            self._run([sys.executable, "-c", text.replace("https://hooks.slack.example.com/", NOBODY)])
        elif kind == "sh":
            for line in text.splitlines():
                self._command(line)

    def _command(self, line: str) -> None:
        words = shlex.split(line.replace("RUN_ID", self.run_id))
        match words:
            case ["cd", folder]:
                self.folder /= folder
            case ["whitney", "up", *options]:
                assert options == ["--model", "tiny"], "what `whitney_up` starts"
                self.up = self._stack.enter_context(whitney_up(self.folder))
                self._environment = environment_of(self.folder)
                self._sit_down()
            case ["export", setting]:
                assert setting == "PREFECT_API_URL=http://127.0.0.1:4200/api"  # unless that port was taken
                assert self.up is not None
                self._environment["PREFECT_API_URL"] = self.up.notice()["prefect_api_url"]
                self._sit_down()
            case _:
                self._run(words)

    def _sit_down(self) -> None:
        """At a terminal in the environment as it is now."""
        self.leave()
        self._typist = Typist(self.folder, self._environment)

    def leave(self) -> None:
        """The terminal, and what runs elsewhere."""
        if self._typist is not None:
            self._typist.close()
            self._typist = None

    def _run(self, words: list[str]) -> None:
        if words[0] in COMMANDS:
            assert self._typist is not None
            said = self._typist.type(words)
        else:
            done = subprocess.run(
                words, cwd=self.folder, env=self._environment or None, capture_output=True, text=True, check=False
            )
            said = Said(done.returncode, done.stdout, done.stderr)
        assert said.status == 0, f"{shlex.join(words)}\n{said.out}\n{said.err}"
        assert "Traceback" not in said.err
        if words[:3] == ["prefect", "deployment", "run"]:
            self.run_id = re.findall(UUID_PATTERN, said.out)[0]
        if words[:2] == ["prefect", "flow-run"] and (expected := ENDS.get(words[2])):
            assert self.up is not None
            assert self.up.ended(self.run_id)["type"] == expected


@pytest.mark.timeout(900)
def test_from_an_empty_folder_to_a_nightly_job_and_down_again(tmp_path: Path) -> None:
    with ExitStack() as stack:
        newcomer = Newcomer(tmp_path, stack)
        stack.callback(newcomer.leave)
        for kind, text in BLOCKS:
            newcomer.type(kind, text)
        up = newcomer.up
        assert up is not None
        trained = [run for run in up.runs("sft/nightly") if run["state"]["type"] != "SCHEDULED"]
        assert {run["state"]["type"] for run in trained} == {"COMPLETED"}
        assert sorted(run["run_count"] > 0 for run in trained) == [True, True]
        adapters = list((newcomer.folder / "runs").glob("*/adapter/adapter_model.safetensors"))
        assert len(adapters) == 2
        assert any(run["state"]["type"] == "SCHEDULED" for run in up.runs("sft/nightly")), "tonight's"
        assert (newcomer.folder / "copy-of-prefect.db").is_file()
        assert (newcomer.folder / "copy-of-ledger.sqlite").is_file()
        newcomer.leave()
        up.process.send_signal(signal.SIGINT)
        assert up.process.wait(90) == 0, up.said()
        no_process_is_left(up)
        assert set(statuses_in_the_ledger(up.folder)) == {"closed"}


def test_files_and_pages_that_it_names_are_there() -> None:
    targets = re.findall(r"\]\(([^)#:]+)\)", PAGE)
    made = {"deployments/team/.env"}  # by the reader
    named = set(re.findall(r"\b(?:tests|deployments)/[\w/.-]+\.\w+", PAGE)) - made
    missing = [name for name in targets if not (ROOT / "docs" / name).exists()]
    missing += [name for name in named if not (ROOT / name).exists()]
    assert missing == []


@pytest.mark.parametrize("command", ["deploy", "worker"])
def test_options_of_whitney_in_blocks_that_are_not_run_exist(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = {
        option
        for line in CONSOLE.splitlines()
        for _, marker, arguments in [line.partition(f"whitney {command}")]
        if marker
        for option in re.findall(r"--[\w-]+", arguments)
    }
    assert options
    run_command([command, "--help"])
    assert options <= set(re.findall(r"--[\w-]+", capsys.readouterr().out))
