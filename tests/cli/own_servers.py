"""A run whose servers are its own, in a process of its own: its configuration, its command and its environment."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from prefect_tables import database_with_tables

CONFIG = """
algorithm = "sft"
cycles = 3
batch_size = 4
[model]
name = "tiny"
[data]
source = "addition-1digit"
[evaluation]
enabled = false
"""


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "cli", "run", *arguments]


def unconfigured(folder: Path) -> dict[str, str]:
    """Neither a Prefect server nor Whitney is named, and no gateway is found on this machine."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("WHITNEY_", "PREFECT_API_URL"))}
    own = {"PREFECT_HOME": str(folder / "prefect-home"), "WHITNEY_DATA_DIR": str(folder / "nobody")}
    return ours | own | database_with_tables(folder)


def summary_in(folder: Path) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads((folder / "runs" / "r" / "summary.json").read_text())
    return summary
