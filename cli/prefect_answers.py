"""What answers at the address of a Prefect API: asked without Prefect, which takes a second to import."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen


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
        with urlopen(f"{api_url}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except (URLError, OSError, ValueError):
        return False
