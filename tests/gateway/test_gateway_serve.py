"""The gateway as a process: key, lock, notice, signals, and words for what cannot be."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from gateway.launch import GatewayProcess, LaunchError, start_gateway
from gateway.serve import listen
from gateway.storage import DataDirectory, DataDirectoryError
from whitney.routes import PREFIX

NO_DELAYS = ("--delays", '{"sample": 0, "default": 0}')


@pytest.fixture(autouse=True)
def _no_key_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WHITNEY_API_KEY", raising=False)


def _status(gateway: GatewayProcess, key: str) -> int:
    headers = {"authorization": f"Bearer {key}"}
    return httpx.get(f"{gateway.base_url}{PREFIX}/capabilities", headers=headers, trust_env=False).status_code


def _main(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gateway", *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def test_a_gateway_says_how_to_reach_it_and_never_its_key(tmp_path: Path) -> None:
    with start_gateway(tmp_path, provider="delay", extra_args=NO_DELAYS) as gateway:
        key_file = tmp_path / "api_key"
        assert key_file.read_text().strip() == gateway.api_key
        assert key_file.stat().st_mode & 0o777 == 0o600
        assert _status(gateway, gateway.api_key) == 200
        assert _status(gateway, gateway.api_key[:-1]) == 401
        log = gateway.log.read_text()
        assert f"export WHITNEY_BASE_URL={gateway.base_url}" in log
        assert f"export WHITNEY_API_KEY=$(cat {key_file})" in log
        assert gateway.api_key not in log + repr(gateway)
        notice = json.loads((tmp_path / "gateway.json").read_bytes())
        assert notice.keys() == {"base_url", "pid", "version", "provider"}
        assert (notice["base_url"], notice["pid"], notice["provider"]) == (gateway.base_url, gateway.pid, "delay")
        assert os.getpgid(gateway.pid) != os.getpgid(0), "a terminal's Ctrl-C would end it before its client has closed"
        with pytest.raises(LaunchError, match="another gateway is using"), start_gateway(tmp_path, provider="delay"):
            pass
        assert gateway.stop() == 0
        assert not (tmp_path / "gateway.json").exists()
        assert gateway.stop() == 0


def test_a_key_in_the_environment_wins_and_is_not_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHITNEY_API_KEY", "a-key-of-my-own")
    with start_gateway(tmp_path, provider="delay", extra_args=NO_DELAYS) as gateway:
        assert _status(gateway, "a-key-of-my-own") == 200
        assert not (tmp_path / "api_key").exists()
        assert "a-key-of-my-own" not in gateway.log.read_text()


def test_after_a_sigkill_the_next_start_finds_its_way(tmp_path: Path) -> None:
    with start_gateway(tmp_path, provider="delay", extra_args=NO_DELAYS) as gateway:
        key = gateway.api_key
        assert gateway.kill() == -signal.SIGKILL
    assert (tmp_path / "gateway.json").exists()
    with start_gateway(tmp_path, provider="delay", extra_args=NO_DELAYS) as gateway:
        assert gateway.api_key == key
        assert _status(gateway, key) == 200


PARENT = """
import sys, time
from pathlib import Path
from gateway.launch import start_gateway

with start_gateway(Path(sys.argv[1]), provider="delay") as gateway:
    print(gateway.pid, flush=True)
    time.sleep(600)
"""


def test_a_gateway_stops_cleanly_when_its_parent_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
    wait_until_gone(pid)
    assert not (tmp_path / "gateway.json").exists(), "it was not given the time to put its things away"


def wait_until_gone(pid: int, patience_s: float = 30.0) -> None:
    """A process that is nobody's child any more cannot be waited for."""
    deadline = time.monotonic() + patience_s
    while _is_alive(pid):
        assert time.monotonic() < deadline, f"process {pid} lives on"
        time.sleep(0.05)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_gateway_whose_parent_ignores_sigint_still_stops_on_it(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with start_gateway(tmp_path, provider="delay", extra_args=NO_DELAYS) as gateway:
            os.kill(gateway.pid, signal.SIGINT)
            assert gateway.process.wait(20) == 0
            assert not (tmp_path / "gateway.json").exists()
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_gateway_that_stops_answers_its_long_polls_first(tmp_path: Path) -> None:
    with start_gateway(tmp_path, provider="delay", extra_args=NO_DELAYS) as gateway:
        headers = {"authorization": f"Bearer {gateway.api_key}"}
        with httpx.Client(base_url=gateway.base_url + PREFIX, headers=headers, trust_env=False, timeout=70) as http:
            session_id = http.post("/sessions", json={"create_key": "s"}).json()["session_id"]
            run = {"create_key": "r", "provider": "local", "model": "tiny"}
            run_id = http.post(f"/sessions/{session_id}/runs", json=run).json()["run_id"]
            http.post(f"/runs/{run_id}/operations", json={"seq_id": 1, "kind": "save_state", "payload": {}})
            request = http.build_request("GET", f"/runs/{run_id}/operations/1", params={"wait_s": 60})
            with socket.create_connection((request.url.host, request.url.port or 80)) as poll:
                head = f"GET {request.url.raw_path.decode()} HTTP/1.1\r\nhost: x\r\n"
                poll.sendall(f"{head}authorization: {headers['authorization']}\r\n\r\n".encode())
                http.get("/capabilities")  # the poll was sent before, so it has been read by now
                gateway.process.send_signal(signal.SIGTERM)
                assert b'"status":"queued"' in poll.makefile("rb").read()
        assert gateway.process.wait(20) == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--provider", "nobody"], "--provider nobody: Input should be 'local'"),
        (["--threads", "many"], "--threads"),
        (["--session-ttl-s", "-1"], "--session-ttl-s"),
        (["--delays", "{"], "Invalid value for --delays"),
        (["--delays", '{"sleep": 1}'], 'Unknown field "sleep"'),
        (["--faults", "/nowhere/faults.json"], "/nowhere/faults.json"),
        (["--provider", "local", "--model", "llama-9"], "llama-9"),
    ],
)
def test_what_cannot_be_served_is_said_in_a_line(tmp_path: Path, arguments: list[str], says: str) -> None:
    ended = _main("--port", "0", "--data-dir", str(tmp_path), *arguments)
    assert ended.returncode == 2
    assert says in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ended = _main("--port", port, "--data-dir", str(tmp_path), "--provider", "delay")
    assert ended.returncode == 2
    assert f"cannot listen on 127.0.0.1:{port}" in ended.stderr


def test_listening_wider_than_loopback_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    listen("127.0.0.1", 0).close()
    assert caplog.text == ""
    listen("0.0.0.0", 0).close()
    assert "LISTENING ON 0.0.0.0" in caplog.text


def test_an_empty_key_file_is_an_error_and_not_an_empty_key(tmp_path: Path) -> None:
    (tmp_path / "api_key").write_text("\n")
    with pytest.raises(DataDirectoryError, match="is empty"):
        DataDirectory(tmp_path).api_key()


@pytest.mark.parametrize("content", [b"\xff\xfea\0", b"two words\n", "schlüssel-1234567\n".encode()])
def test_a_key_that_fits_no_header_is_refused_by_its_files_name_and_is_not_quoted(
    content: bytes, tmp_path: Path
) -> None:
    (tmp_path / "api_key").write_bytes(content)
    with pytest.raises(DataDirectoryError, match=r"api_key holds no key: .* delete it") as refusal:
        DataDirectory(tmp_path).api_key()
    assert "1234567" not in str(refusal.value)


def test_a_key_in_the_environment_that_fits_no_header_is_refused_by_the_variables_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHITNEY_API_KEY", "ключ")
    with pytest.raises(DataDirectoryError, match=r"\$WHITNEY_API_KEY holds no key"):
        DataDirectory(tmp_path).api_key()


@pytest.mark.parametrize("name", ["api_key", "gateway.json", "ledger.sqlite", "gateway.lock"])
def test_a_directory_in_the_place_of_a_file_is_named(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(DataDirectoryError, match=rf"{tmp_path / name}"):
        DataDirectory(tmp_path).open()


def test_a_data_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataDirectoryError, match="cannot be used as data directory"):
        DataDirectory(tmp_path / "file" / "data").open()


def test_the_gateway_imports_neither_torch_nor_an_http_client() -> None:
    heavy = "('torch', 'httpx', 'prefect')"
    code = f"import sys, gateway.__main__, gateway.launch; print([name for name in {heavy} if name in sys.modules])"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.strip() == "[]"
