"""A Prefect database with its tables made, for servers of a test's own.

To make them costs a server as much as all else that it does to start. They are made once for a version of Prefect, and
kept in pytest's cache.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from importlib.metadata import version
from pathlib import Path

from filelock import FileLock

CACHE = Path(__file__).parents[1] / ".pytest_cache"


@cache
def _made() -> Path:
    """The one that others are copied from."""
    CACHE.mkdir(exist_ok=True)
    database = CACHE / f"prefect-{version('prefect')}.db"
    with FileLock(database.with_suffix(".lock")):  # the worker processes of one pytest, or several
        if not database.exists():
            being_made = database.with_suffix(".new")
            being_made.unlink(missing_ok=True)
            environment = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")} | {
                "PREFECT_HOME": str(CACHE / "prefect-home"),
                "PREFECT_SERVER_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{being_made}",
                "DO_NOT_TRACK": "1",
            }
            command = [sys.executable, "-m", "prefect", "server", "database", "upgrade", "--yes"]
            subprocess.run(command, env=environment, capture_output=True, check=True)
            being_made.replace(database)
    return database


def with_tables(home: Path, database: str = "prefect.db") -> Path:
    """A PREFECT_HOME that begins with them; one that has a database already keeps it."""
    home.mkdir(parents=True, exist_ok=True)
    if not (home / database).exists():
        shutil.copyfile(_made(), home / database)
    return home


def database_with_tables(folder: Path) -> dict[str, str]:
    """The variable for a command whose server has a PREFECT_HOME that is not known before: the database is here."""
    database = with_tables(folder / "prefect-tables") / "prefect.db"
    return {"PREFECT_SERVER_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{database}"}
