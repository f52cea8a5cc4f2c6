"""What answers at the address of a Prefect API: asked without Prefect, which takes a second to import."""

from __future__ import annotations

import json
from base64 import b64encode
from http.client import HTTPException
from pathlib import Path
from urllib.error import URLError
from urllib.parse import unquote, urlsplit
from urllib.request import Request, urlopen

from tasks.userinfo import without_userinfo


def home_of_server(api_url: str) -> Path | None:
    """The PREFECT_HOME of the server that answers there; None where none does."""
    try:
        with urlopen(f"{api_url}/admin/settings", timeout=5) as answer:
            return Path(json.load(answer)["home"])
    except (URLError, OSError, ValueError, KeyError):
        return None


def is_up(api_url: str) -> bool:
    """Whether a Prefect API answers there."""
    try:
        with urlopen(_request(api_url, "/health"), timeout=5) as answer:
            return bool(answer.status == 200)
    except (URLError, HTTPException, OSError, ValueError):
        return False


def _request(api_url: str, path: str) -> Request:
    """A user and a password that the address names go into a header, as Prefect's client has it: urllib takes none."""
    named = urlsplit(api_url)
    request = Request(without_userinfo(api_url) + path)
    if named.username is not None:
        user = f"{unquote(named.username)}:{unquote(named.password or '')}"
        request.add_header("Authorization", f"Basic {b64encode(user.encode()).decode()}")
    return request
