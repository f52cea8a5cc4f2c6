"""How a process of this package is started: it finds the modules that this process finds."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def command(module: str, *arguments: str) -> list[str]:
    """The command that runs a module of this package."""
    # -P, or a folder named `tasks` where the user stands would be imported in place of this package.
    return [sys.executable, "-P", "-m", module, *arguments]


def environment(**variables: str) -> dict[str, str]:
    """This process's environment, where modules are looked for in the places where it looks itself, and `variables`."""
    search_path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
    return {**os.environ, "PYTHONPATH": search_path, **variables}
