"""The data folder of a run's own gateway, where another process has it already."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli import endpoint
from cli.failures import CommandFailedError
from gateway.storage import DataDirectory


def test_a_gateway_that_does_not_let_go_is_told_with_both_reasons_it_may_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "LETTING_GO_S", 0.0)
    held = DataDirectory(tmp_path)
    held.open()
    told = rf"a gateway still works in {tmp_path}: either another process goes on with this run, or .*gateway\.json"
    with (
        pytest.raises(CommandFailedError, match=told),
        endpoint.embedded_gateway(("tiny",), "local", say=print, former=tmp_path),
    ):
        pass
    held.close()


def test_a_folder_that_no_gateway_can_use_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "ledger.sqlite").mkdir()
    with (
        pytest.raises(CommandFailedError, match=r"ledger\.sqlite is a directory"),
        endpoint.embedded_gateway(("tiny",), "local", say=print, former=tmp_path),
    ):
        pass
