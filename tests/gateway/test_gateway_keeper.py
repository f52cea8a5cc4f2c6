"""A gateway that dies while it is needed is started again; one that is not needed any more, or cannot start, is not."""

from __future__ import annotations

import os
import queue
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest

from gateway.keeper import how_it_ended, keep_gateway
from gateway.launch import GatewayProcess
from whitney.routes import PREFIX

PATIENCE_S = 60.0


class Told:
    """What the keeper has said, from its own thread."""

    def __init__(self) -> None:
        self.ended: queue.Queue[tuple[str, str]] = queue.Queue()
        self.given_up: queue.Queue[tuple[str, str]] = queue.Queue()

    @contextmanager
    def gateway(self, folder: Path, restarts: int = 3) -> Iterator[GatewayProcess]:
        def ended(*said: str) -> None:
            self.ended.put((said[0], said[1]))

        def given_up(*said: str) -> None:
            self.given_up.put((said[0], said[1]))

        with keep_gateway(
            folder, provider="delay", models=("tiny",), timeout_s=60, ended=ended, given_up=given_up, restarts=restarts
        ) as gateway:
            yield gateway


def answers(gateway: GatewayProcess) -> httpx.Response:
    """The list of sessions, from whichever process listens there."""
    headers = {"authorization": f"Bearer {gateway.api_key}"}
    transport = httpx.HTTPTransport(retries=10, trust_env=False)  # with a back-off: some seconds in all
    with httpx.Client(base_url=f"{gateway.base_url}{PREFIX}", headers=headers, transport=transport) as http:
        return http.get("/sessions")


def test_a_gateway_that_is_killed_is_back_on_its_port_with_its_data(tmp_path: Path) -> None:
    told = Told()
    with told.gateway(tmp_path) as gateway:
        headers = {"authorization": f"Bearer {gateway.api_key}"}
        opened = httpx.post(
            f"{gateway.base_url}{PREFIX}/sessions", json={"create_key": "s"}, headers=headers, trust_env=False
        ).json()
        first = gateway.pid
        os.kill(first, signal.SIGKILL)
        base_url, how = told.ended.get(timeout=PATIENCE_S)
        assert base_url == gateway.base_url
        assert how == "the gateway of this run was killed (SIGKILL: by somebody, or because memory ran out)"
        assert [session["session_id"] for session in answers(gateway).json()["sessions"]] == [opened["session_id"]]
        assert gateway.pid != first
    assert told.ended.empty()
    assert told.given_up.empty()
    assert f"WARNING gateway.keeper: {how}; starting it again" in gateway.log.read_text()


def test_one_that_has_died_too_often_stays_away(tmp_path: Path) -> None:
    told = Told()
    with told.gateway(tmp_path, restarts=0) as gateway:
        os.kill(gateway.pid, signal.SIGTERM)
        base_url, why = told.given_up.get(timeout=PATIENCE_S)
    assert base_url == gateway.base_url
    assert why == f"the gateway of this run has ended with code 0, once more after 0 restarts; its log: {gateway.log}"
    assert told.ended.empty()


def test_one_that_does_not_come_up_again_is_given_up_at_once_and_the_reason_is_its_own(tmp_path: Path) -> None:
    told = Told()
    with told.gateway(tmp_path) as gateway:
        os.kill(gateway.pid, signal.SIGSTOP)
        (tmp_path / "ledger.sqlite").write_bytes(b"no database" * 1000)
        (tmp_path / "ledger.sqlite-wal").unlink(missing_ok=True)
        os.kill(gateway.pid, signal.SIGKILL)
        _, why = told.given_up.get(timeout=PATIENCE_S)
    assert "and does not start again: the gateway ended with code 2; its log ends: gateway: the ledger" in why
    assert len(why.splitlines()) == 1
    assert told.ended.qsize() == 1


@pytest.mark.parametrize("starting", [False, True])
def test_one_that_is_not_needed_any_more_is_stopped_even_while_it_is_starting_and_none_follows(
    starting: bool, tmp_path: Path
) -> None:
    told = Told()
    with told.gateway(tmp_path) as gateway:
        if starting:
            os.kill(gateway.pid, signal.SIGKILL)
            told.ended.get(timeout=PATIENCE_S)
    assert told.ended.empty()
    assert told.given_up.empty()
    assert gateway.process.poll() is not None
    here = str(tmp_path)
    assert [process for process in psutil.process_iter(["cmdline"]) if here in str(process.info["cmdline"])] == []


def test_how_a_process_has_ended_is_said_in_words() -> None:
    assert how_it_ended(2) == "has ended with code 2"
    assert how_it_ended(-signal.SIGTERM) == "has ended by SIGTERM"
    assert how_it_ended(-signal.SIGKILL) == "was killed (SIGKILL: by somebody, or because memory ran out)"
