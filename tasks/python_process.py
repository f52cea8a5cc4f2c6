"""How a process of this package is started: it finds the modules that this process finds, and is not given the key."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tasks.redaction import of_key


def command(module: str, *arguments: str) -> list[str]:
    """The command that runs a module: this project's own, or a library's."""
    # -P, or a folder named `tasks` where the user stands would be imported in place of this package.
    return [sys.executable, "-P", "-m", module, *arguments]


def environment(**variables: str) -> dict[str, str]:
    """This process's environment without Whitney's key, and `variables`; modules are looked for where it looks itself.

    Such a process asks Whitney nothing, and what a user's reward function says of its environment ends up in files.
    """
    search_path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
    inherited = {name: value for name, value in os.environ.items() if not of_key(name)}
    return {**inherited, "PYTHONPATH": search_path, **variables}
