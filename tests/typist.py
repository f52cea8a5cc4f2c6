"""Commands as they are typed, each in a fork of one process that has imported what all of them import.

To import Prefect and the flows takes a command longer than what it does. A fork is as good as a new process: nothing
has been started in the one that it comes from, whose environment is that of the commands.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import NamedTuple

COMMANDS = ("whitney", "prefect")
IMPORTED = ("flows", "deployments.register", "prefect.cli")


class Said(NamedTuple):
    """What a command answered."""

    status: int
    out: str
    err: str


class Typist:
    """Types in a folder. To be closed."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._folder = folder
        self._process = subprocess.Popen(
            # -P: this file's folder has an `algorithms` of its own
            [sys.executable, "-P", __file__],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def type(self, words: list[str]) -> Said:
        """A command, and wait for its end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(words).encode() + b"\n")
        self._process.stdin.flush()
        status = int(self._process.stdout.readline())
        out, err = (self._folder / f"typed.{name}" for name in ("out", "err"))
        said = Said(status, out.read_text(), err.read_text())
        out.unlink()
        err.unlink()
        return said

    def close(self) -> None:
        """End it."""
        self._process.communicate()
        assert self._process.returncode == 0


def answer(words: list[str]) -> int:
    """In a fork: the console script of that name."""
    for number, name in ((0, os.devnull), (1, "typed.out"), (2, "typed.err")):
        os.dup2(os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC), number)
    (script,) = entry_points(group="console_scripts", name=words[0])
    sys.argv = words
    try:
        sys.exit(script.load()())
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    sys.stdout.flush()
    sys.stderr.flush()
    return status


def serve() -> None:
    """A command a line; the exit code of each."""
    for name in IMPORTED:
        __import__(name)
    for line in sys.stdin.buffer:
        child = os.fork()
        if child == 0:
            os._exit(answer(json.loads(line)))
        sys.stdout.write(f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve()
