"""Where Whitney is, and with which key: arguments, the environment, `.env`, or a gateway running on this machine."""

from __future__ import annotations

import json
import os
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from whitney.errors import ConfigurationError, NoEndpointError

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})

Seconds = Annotated[float, Field(gt=0)]


class WhitneySettings(BaseSettings):
    """How to reach an endpoint. The key is a SecretStr: no repr, log or dump shows it."""

    model_config = SettingsConfigDict(
        env_prefix="WHITNEY_",
        env_file=".env",
        env_ignore_empty=True,
        extra="ignore",
        frozen=True,
        hide_input_in_errors=True,  # a key that is refused for its form would be quoted in the refusal
    )

    base_url: str = Field(description="http(s)://host[:port][/prefix]")
    api_key: SecretStr = Field(min_length=1, description="Bearer key")
    routes_file: Path | None = Field(None, description="JSON object {route name: path} put over the route table")
    connect_timeout_s: Seconds = 10.0
    request_timeout_s: Seconds = 120.0
    first_contact_s: Seconds = Field(15.0, description="How long an endpoint that has never answered is tried")
    wait_s: Annotated[float, Field(gt=0, le=60)] = Field(30.0, description="Length of one long poll")
    retry_deadline_s: Seconds = Field(300.0, description="How long a request is repeated before it fails")
    retry_after_cap_s: Seconds = Field(60.0, description="Longest Retry-After that is honoured")
    compress_above_bytes: Annotated[int, Field(ge=0)] = Field(64 * 1024, description="Larger bodies are sent as zstd")

    @field_validator("base_url")
    @classmethod
    def _is_a_url(cls, value: str) -> str:
        parts = urlsplit(value)
        _ = parts.port  # raises for one that is no port
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
            raise ValueError("write it as http(s)://host[:port][/prefix]")
        if parts.username or parts.password:
            raise ValueError("the key belongs into WHITNEY_API_KEY, never into the URL")
        if parts.scheme == "http" and parts.hostname not in LOOPBACK:
            warnings.warn(f"{parts.hostname} is asked over plain http: the key travels unencrypted", stacklevel=2)
        return value.rstrip("/")

    @field_validator("api_key")
    @classmethod
    def _fits_a_header(cls, value: SecretStr) -> SecretStr:
        # Read from a file, a key often ends in a line break; httpx would refuse it much later, and quote it.
        key = value.get_secret_value().strip()
        if not key or not all("!" <= character <= "~" for character in key):
            raise ValueError("a key is printable ASCII without spaces")
        return SecretStr(key)


def default_data_dir() -> Path:
    """The embedded gateway's data folder: $WHITNEY_DATA_DIR, or `whitney` in the user's data folder (XDG)."""
    if own := os.environ.get("WHITNEY_DATA_DIR"):
        return Path(own).expanduser()
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "whitney"


def local_gateway(data_dir: Path | None = None) -> WhitneySettings | None:
    """Settings of the embedded gateway that is running on this machine; None when there is none.

    A key in the environment or `.env` comes before the folder's, as it does for the gateway itself; where neither can
    be used, or the notice names no URL, there is no gateway to be had.
    """
    folder = data_dir or default_data_dir()
    try:
        notice = json.loads((folder / "gateway.json").read_text(encoding="utf-8"))
        base_url, pid = str(notice["base_url"]), int(notice["pid"])
        if pid <= 0:  # to os.kill these are groups of processes, and always there
            return None
        os.kill(pid, 0)  # signal 0 asks whether the process is there
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return None
    with suppress(ValidationError):
        return WhitneySettings(base_url=base_url)
    with suppress(ValidationError, OSError, ValueError):
        return WhitneySettings(base_url=base_url, api_key=SecretStr((folder / "api_key").read_text(encoding="utf-8")))
    return None


def resolve_settings() -> WhitneySettings:
    """Settings from the environment and `.env`; where neither names an endpoint, the local gateway's.

    Raises:
        NoEndpointError: nothing names an endpoint, and none is running here.
        ConfigurationError: a variable is missing beside another, or has a value that cannot be used.
    """
    try:
        return WhitneySettings()
    except ValidationError as error:
        issues = error.errors(include_url=False, include_input=False)
    missing = {str(issue["loc"][0]) for issue in issues if issue["type"] == "missing"}
    if wrong := [issue for issue in issues if issue["type"] != "missing"]:
        raise ConfigurationError(
            "; ".join(f"WHITNEY_{str(issue['loc'][0]).upper()}: {issue['msg']}" for issue in wrong)
        )
    if "base_url" not in missing:
        raise ConfigurationError("WHITNEY_BASE_URL is set and WHITNEY_API_KEY is not: set it to the endpoint's key")
    local = local_gateway()
    if local is None:
        raise NoEndpointError(
            "no Whitney endpoint: set WHITNEY_BASE_URL and WHITNEY_API_KEY, or start the embedded gateway on this "
            "machine with `whitney serve`"
        )
    return local
