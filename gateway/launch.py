"""A gateway as a child process: for the command line, for tests and for benchmarks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gateway.storage import DataDirectory

_LOOK_EVERY_S = 0.05
_LOOK_AGAIN_S = 0.005
_LOG_TAIL_LINES = 20


class LaunchError(RuntimeError):
    """The gateway did not come up; the message ends with the tail of its log."""

    @property
    def briefly(self) -> str:
        """The same in a line: what happened, and the log's last line."""
        lines = str(self).splitlines()
        return lines[0] if len(lines) < 2 else f"{lines[0]} {lines[-1]}"


@dataclass
class GatewayProcess:
    """A gateway that listens. The key stays out of `repr`."""

    base_url: str
    api_key: str = field(repr=False)
    data_dir: Path
    log: Path
    process: subprocess.Popen[bytes] = field(repr=False)

    @property
    def pid(self) -> int:
        """The process id."""
        return self.process.pid

    def stop(self, patience_s: float = 20.0) -> int:
        """Ask it to stop (SIGTERM) and wait; after `patience_s`, kill it. Idempotent; the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            return self.process.wait(patience_s)
        return self.kill()

    def kill(self) -> int:
        """End it as a power cut would (SIGKILL). Idempotent; the exit code."""
        if self.process.poll() is None:
            self.process.kill()
        return self.process.wait()

    def set_faults(self, *faults: Mapping[str, Any]) -> None:
        """These scripted faults from now on and no others, counted from 0; of a gateway that was started with some.

        Raises:
            LaunchError: as `read_faults_again`.
        """
        _write_script(self.data_dir, faults)
        self.read_faults_again()

    def read_faults_again(self, patience_s: float = 20.0) -> None:
        """Have it read its faults file anew (SIGHUP), and wait until the script that is in it now counts.

        Raises:
            LaunchError: the script is wrong, and the former one still counts; or no answer within `patience_s`.
        """
        notice = DataDirectory(self.data_dir).notice
        before = _faults_read(notice)["times_read"]
        self.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + patience_s
        while (read := _faults_read(notice))["times_read"] == before:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise LaunchError(f"the gateway did not read its faults again; its log ends:\n{self.log_tail()}")
            time.sleep(_LOOK_AGAIN_S)
        if read["error"] is not None:
            raise LaunchError(f"the gateway keeps its former faults: {read['error']}")

    def log_tail(self) -> str:
        """The last lines it wrote."""
        return _tail(self.log)


@dataclass(frozen=True, slots=True)
class Launch:
    """How a gateway is started, the first time and, for `gateway.keeper`, again. The fields: see `start_gateway`."""

    data_dir: Path
    arguments: tuple[str, ...]
    timeout_s: float
    own_session: bool = True
    end_with_parent: bool = True

    @property
    def log(self) -> Path:
        """What the gateway writes; it is appended to."""
        return self.data_dir / "gateway.log"

    def spawn(self, port: int) -> subprocess.Popen[bytes]:
        """Start the process, and do not wait for it."""
        # -P, or a `gateway.py` where the user stands would be run in place of this package.
        command = [sys.executable, "-P", "-m", "gateway", "--port", str(port), "--data-dir", str(self.data_dir)]
        command += self.arguments
        if self.end_with_parent:
            command.append("--end-with-parent")
        stdin = subprocess.PIPE if self.end_with_parent else subprocess.DEVNULL
        with self.log.open("ab") as output:
            return subprocess.Popen(
                command, stdin=stdin, stdout=output, stderr=output, start_new_session=self.own_session
            )

    def wait_until_listening(self, process: subprocess.Popen[bytes]) -> GatewayProcess:
        """Return the gateway once it listens. If it does not, the process is ended.

        Raises:
            LaunchError: it ended, or did not listen in time.
        """
        try:
            base_url = _wait_until_listening(process, self.data_dir, self.log, self.timeout_s)
            return GatewayProcess(base_url, DataDirectory(self.data_dir).api_key(), self.data_dir, self.log, process)
        except BaseException:
            process.kill()
            process.wait()
            close_stdin(process)
            raise


@contextmanager
def start_gateway(
    data_dir: Path,
    *,
    provider: str = "local",
    models: Sequence[str] = ("tiny",),
    port: int = 0,
    extra_args: Sequence[str] = (),
    faults: Sequence[Mapping[str, Any]] | None = None,
    timeout_s: float = 60.0,
    own_session: bool = True,
    end_with_parent: bool = True,
) -> Iterator[GatewayProcess]:
    """Start a gateway on a loopback port, wait until it listens, stop it on the way out.

    Args:
        data_dir: its data directory; its log is written there as `gateway.log`.
        provider: as `--provider`.
        models: as `--model`.
        port: as `--port`; 0 takes a free one.
        extra_args: further command line arguments.
        faults: scripted faults (`gateway.faults`), which `set_faults` exchanges; None: it is not to be faulty at all.
        timeout_s: how long it may take to listen.
        own_session: keep a terminal's Ctrl-C from it, so that its client can close its sessions before it goes.
        end_with_parent: stop it when this process ends, even by SIGKILL; on Linux, when the calling thread ends.

    Raises:
        LaunchError: it ended, or did not listen in time.
    """
    data_dir = made(data_dir)
    arguments = ("--provider", provider, "--model", *models, *extra_args)
    if faults is not None:
        arguments += ("--faults", str(_write_script(data_dir, faults)))
    launch = Launch(data_dir, arguments, timeout_s, own_session, end_with_parent)
    gateway = launch.wait_until_listening(launch.spawn(port))
    try:
        yield gateway
    finally:
        gateway.stop()
        close_stdin(gateway.process)


def made(data_dir: Path) -> Path:
    """The data directory's full path; it is its owner's alone where it has to be made."""
    data_dir = data_dir.expanduser().resolve()
    data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    return data_dir


def close_stdin(process: subprocess.Popen[bytes]) -> None:
    """Let go of the pipe by which the gateway notices that this process has ended."""
    if process.stdin is not None:
        process.stdin.close()


def _wait_until_listening(process: subprocess.Popen[bytes], data_dir: Path, log: Path, timeout_s: float) -> str:
    notice = DataDirectory(data_dir).notice
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise LaunchError(f"the gateway ended with code {process.returncode}; its log ends:\n{_tail(log)}")
        with suppress(FileNotFoundError, IsADirectoryError):  # a directory the gateway will complain of
            found = json.loads(notice.read_bytes())
            # A notice with another pid was left behind by a gateway that was killed.
            if found["pid"] == process.pid:
                base_url: str = found["base_url"]
                return base_url
        time.sleep(_LOOK_EVERY_S)
    raise LaunchError(f"the gateway did not listen within {timeout_s:g} s; its log ends:\n{_tail(log)}")


def _write_script(data_dir: Path, faults: Sequence[Mapping[str, Any]]) -> Path:
    script = data_dir / "faults.json"
    script.write_text(json.dumps({"faults": list(faults)}), encoding="utf-8")
    return script


def _faults_read(notice: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(notice.read_bytes()).get("faults", {"times_read": 0, "error": None})
    return read


def _tail(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return os.linesep.join(lines[-_LOG_TAIL_LINES:])
