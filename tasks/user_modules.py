"""Modules of the user's own, such as a reward's, are found in the working directory, and hide none of this project."""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping
from importlib.machinery import PathFinder
from pathlib import Path

OURS = ("algorithms", "benchmarks", "cli", "deployments", "flows", "gateway", "models", "tasks", "whitney")
"""The project's top-level packages: common words, which a user's own file may well be called by."""

ROOT = Path(__file__).resolve().parent.parent
"""The folder that has them."""


def search_working_directory() -> None:
    """From now on modules are looked for in the working directory, too: after libraries, and after this project.

    An editable installation is not on Python's search path, which is gone through first: it is put there, before.
    """
    for folder in (str(ROOT), str(Path.cwd())):
        if folder not in sys.path:
            sys.path.append(folder)


def search_this_project(environment: MutableMapping[str, str]) -> None:
    """Have Python processes with this environment look for this project where an editable installation has it.

    Last, so that nothing of it hides a library; but then a folder of the user's which is no package, of weights and
    called `models`, say, hides nothing either.
    """
    if str(ROOT) not in sys.path:
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (environment.get("PYTHONPATH"), str(ROOT))))


def why_not_from(folder: Path) -> str | None:
    """Why this project's flows cannot run in a folder that Prefect's workers have Python search first; or None.

    They would import a user's `tasks.py` in place of the package of that name.
    """
    if folder.resolve() == ROOT:
        return None
    found = (PathFinder.find_spec(name, [str(folder)]) for name in OURS)
    origins = [Path(spec.origin) for spec in found if spec is not None and spec.origin]  # no package: none
    if not origins:
        return None
    file = origins[0].parent if origins[0].name == "__init__.py" else origins[0]
    return f"{file} has the name of a package of this project, and a run would import it in place of that: rename it"


def is_ours(module_name: str) -> bool:
    """Whether a module's name is of one of this project's packages."""
    return module_name.partition(".")[0] in OURS
