"""The embedded gateway of a real `whitney run` is killed, then, as it goes on, the engine's process alone."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil
from own_servers import CONFIG, command, summary_in, unconfigured

from cli.run_data import Endpoints

PATIENCE_S = 120.0


class Run:
    """`whitney run` in a folder, and its gateway."""

    def __init__(self, folder: Path, prefect_api_url: str) -> None:
        self.folder = folder
        self.environment = unconfigured(folder) | {"PREFECT_API_URL": prefect_api_url}
        self._states = folder / "runs" / "r" / "states.jsonl"

    def states(self) -> int:
        """How many cycles have been trained and saved."""
        return len(self._states.read_text().splitlines()) if self._states.exists() else 0

    def killed_on_its_way(self, *arguments: str, engine_alone: bool) -> str:
        """Run until another state is saved, kill the gateway or its engine; what the terminal said by the end."""
        before = self.states()
        with subprocess.Popen(
            command(*arguments),
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            deadline = time.monotonic() + PATIENCE_S
            while self.states() == before and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.005)
            gateway = psutil.Process(json.loads((self.gateway_data / "gateway.json").read_bytes())["pid"])
            (engine,) = gateway.children()
            for one in (engine,) if engine_alone else (gateway, engine):
                one.kill()
            killed_at = time.monotonic()
            said, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 1, said
        assert time.monotonic() - killed_at < 100, "it asked for as long as it would ask somebody else's endpoint"
        return said

    @property
    def gateway_data(self) -> Path:
        """The data folder of its gateway."""
        endpoints = Endpoints.read(self.folder / "runs" / "r")
        assert endpoints is not None
        assert endpoints.gateway_data_dir is not None
        return Path(endpoints.gateway_data_dir)

    def sessions(self) -> list[str]:
        """The status of each session that its gateway has ever opened."""
        with sqlite3.connect(self.gateway_data / "ledger.sqlite") as ledger:
            return [status for (status,) in ledger.execute("SELECT status FROM sessions")]


def test_a_run_whose_gateway_dies_fails_closed_says_why_and_goes_on_to_the_very_adapter(
    prefect_server: str, undisturbed: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "tiny.toml").write_text(CONFIG)
    run = Run(tmp_path, prefect_server)

    said = run.killed_on_its_way("tiny.toml", "--name", "r", engine_alone=False)
    how = "the gateway of this run was killed (SIGKILL: by somebody, or because memory ran out)"
    assert f"Warning: {how}; starting it again\n" in said
    assert f"\nwhy: {how}; what it had not saved is lost\n" in said
    assert "`whitney run --resume runs/r`" in said
    assert "COULD NOT CLOSE" not in said
    assert run.sessions() == ["closed"]

    said = run.killed_on_its_way("--resume", "r", engine_alone=True)
    assert "provider_lost: the process that held the weights ended" in said
    assert how not in said
    assert "`whitney run --resume runs/r`" in said
    assert run.sessions() == ["closed", "closed"]

    done = subprocess.run(
        command("--resume", "r"), cwd=tmp_path, env=run.environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    summary = summary_in(tmp_path)
    assert summary["adapter_sha256"] == undisturbed["adapter_sha256"]
    assert (summary["attempt"], summary["open_sessions"]) == (3, 0)
