from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError

from whitney.errors import ConfigurationError
from whitney.settings import WhitneySettings, default_data_dir, local_gateway, resolve_settings

HOSTED = "https://whitney.example/prefix"


@pytest.fixture(autouse=True)
def _nothing_configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("WHITNEY_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)


def running_gateway(folder: Path, *, pid: int | None = None, key: str = "sk-local-key") -> Path:
    folder.mkdir(parents=True)
    (folder / "gateway.json").write_text(json.dumps({"base_url": "http://127.0.0.1:8471", "pid": pid or os.getpid()}))
    (folder / "api_key").write_text(key + "\n")
    return folder


def test_the_environment_names_the_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHITNEY_BASE_URL", HOSTED + "/")
    monkeypatch.setenv("WHITNEY_API_KEY", "sk-env\n")
    settings = resolve_settings()
    assert settings.base_url == HOSTED
    assert settings.api_key.get_secret_value() == "sk-env", "a line break from a file is no part of a key"


def test_a_dotenv_file_does_too_and_the_environment_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".env").write_text(f"WHITNEY_BASE_URL={HOSTED}\nWHITNEY_API_KEY=sk-dotenv\n")
    assert resolve_settings().api_key.get_secret_value() == "sk-dotenv"
    monkeypatch.setenv("WHITNEY_API_KEY", "sk-env")
    assert resolve_settings().api_key.get_secret_value() == "sk-env"


def test_arguments_win_over_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHITNEY_BASE_URL", HOSTED)
    settings = WhitneySettings(base_url="http://localhost:1", api_key=SecretStr("sk-argument"))
    assert (settings.base_url, settings.api_key.get_secret_value()) == ("http://localhost:1", "sk-argument")


def test_where_nothing_is_named_the_gateway_on_this_machine_is_used(tmp_path: Path) -> None:
    running_gateway(tmp_path / "data" / "whitney")
    settings = resolve_settings()
    assert settings.base_url == "http://127.0.0.1:8471"
    assert settings.api_key.get_secret_value() == "sk-local-key"


def test_an_empty_variable_is_as_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running_gateway(tmp_path / "data" / "whitney")
    monkeypatch.setenv("WHITNEY_BASE_URL", "")
    assert resolve_settings().base_url == "http://127.0.0.1:8471"


def test_the_data_folder_is_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert default_data_dir() == tmp_path / "data" / "whitney"
    monkeypatch.delenv("XDG_DATA_HOME")
    assert default_data_dir() == Path.home() / ".local" / "share" / "whitney"
    monkeypatch.setenv("WHITNEY_DATA_DIR", "~/own")
    assert default_data_dir() == Path.home() / "own"


def test_a_data_folder_that_is_named_is_where_the_local_gateway_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHITNEY_DATA_DIR", str(running_gateway(tmp_path / "elsewhere")))
    assert resolve_settings().base_url == "http://127.0.0.1:8471"


def test_a_key_in_the_environment_wins_over_the_local_gateways_file_as_it_does_for_the_gateway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = running_gateway(tmp_path / "data" / "whitney")
    monkeypatch.setenv("WHITNEY_API_KEY", "sk-env")
    assert resolve_settings().api_key.get_secret_value() == "sk-env"
    (folder / "api_key").unlink()  # a gateway that was given its key writes no file
    assert resolve_settings().api_key.get_secret_value() == "sk-env"


def test_a_gateway_that_was_killed_is_not_taken_for_a_running_one(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert local_gateway(running_gateway(tmp_path / "stale", pid=gone.pid)) is None


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"base_url": "http://127.0.0.1:1"}',
        '{"base_url": "http://127.0.0.1:1", "pid": "x"}',
        '{"base_url": "http://127.0.0.1:1", "pid": 0}',
        '{"base_url": "http://127.0.0.1:1", "pid": -1}',
        '{"base_url": "http://127.0.0.1:1", "pid": 1e30}',
        pytest.param(f'{{"base_url": "not a url", "pid": {os.getpid()}}}', id="not a url"),
    ],
)
def test_a_notice_that_cannot_be_read_is_as_none(tmp_path: Path, content: str) -> None:
    folder = running_gateway(tmp_path / "gateway")
    (folder / "gateway.json").write_text(content)
    assert local_gateway(folder) is None


def test_without_any_endpoint_the_error_names_the_variables_and_the_command() -> None:
    with pytest.raises(ConfigurationError, match=r"WHITNEY_BASE_URL.*WHITNEY_API_KEY.*whitney serve"):
        resolve_settings()


def test_a_url_without_a_key_names_the_missing_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHITNEY_BASE_URL", HOSTED)
    with pytest.raises(ConfigurationError, match="WHITNEY_API_KEY is not"):
        resolve_settings()


def test_a_wrong_value_is_named_even_where_the_url_is_missing_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running_gateway(tmp_path / "data" / "whitney")
    monkeypatch.setenv("WHITNEY_WAIT_S", "99")
    with pytest.raises(ConfigurationError, match=r"WHITNEY_WAIT_S: .*60"):
        resolve_settings()


@pytest.mark.parametrize(
    "url",
    [
        "whitney.example",
        "ftp://whitney.example",
        "https://",
        "https://whitney.example:99999",
        "https://whitney.example?key=1",
        "https://user:sk-in-the-url@whitney.example",
    ],
)
def test_a_url_that_is_none_is_refused_and_not_quoted(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHITNEY_BASE_URL", url)
    monkeypatch.setenv("WHITNEY_API_KEY", "sk-env")
    with pytest.raises(ConfigurationError, match="WHITNEY_BASE_URL: ") as caught:
        resolve_settings()
    assert "sk-in-the-url" not in str(caught.value)


@pytest.mark.parametrize("key", ["sk-planted key", "sk-planted\nkey", "sk-planted-kéy"])
def test_a_key_that_cannot_travel_in_a_header_is_refused_and_not_quoted(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHITNEY_BASE_URL", HOSTED)
    monkeypatch.setenv("WHITNEY_API_KEY", key)
    with pytest.raises(ValidationError, match="printable ASCII") as refused:
        WhitneySettings()
    with pytest.raises(ConfigurationError, match=r"WHITNEY_API_KEY: .*printable ASCII") as caught:
        resolve_settings()
    assert "planted" not in str(refused.value) + str(caught.value)


def test_plain_http_to_another_machine_warns() -> None:
    with pytest.warns(UserWarning, match="travels unencrypted"):
        WhitneySettings(base_url="http://whitney.example", api_key=SecretStr("sk"))
    for loopback in ("http://127.0.0.1:1", "http://localhost", "http://[::1]:1"):
        WhitneySettings(base_url=loopback, api_key=SecretStr("sk"))
