"""Where a run comes from: code, lock, Python, packages. Nothing here names a machine or a user."""

from __future__ import annotations

import hashlib
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parent.parent
PACKAGES = ("whitney-pipelines", "prefect", "pydantic", "httpx", "numpy", "tokenizers", "safetensors", "torch")


def provenance(project: Path = PROJECT) -> dict[str, Any]:
    """`{"git": {"commit", "dirty"} | None, "lock_sha256", "python", "platform", "packages": {name: version | None}}`.

    `dirty` counts changes of tracked files only. Without a lock file `lock_sha256` is None.
    """
    return {
        "git": _git(project),
        "lock_sha256": _sha256(project / "requirements.lock"),
        "python": platform.python_version(),
        "platform": f"{platform.system()}-{platform.machine()}",
        "packages": {name: _version(name) for name in PACKAGES},
    }


def _git(project: Path) -> dict[str, Any] | None:
    """The commit the code stands at; None without git, or when the code lies inside somebody else's checkout."""
    top = _run_git(project, "rev-parse", "--show-toplevel")
    commit = _run_git(project, "rev-parse", "HEAD")
    if not top or not commit or Path(top).resolve() != project.resolve():
        return None
    return {"commit": commit, "dirty": bool(_run_git(project, "status", "--porcelain", "--untracked-files=no"))}


def _run_git(project: Path, *arguments: str) -> str | None:
    command = ["git", "-C", str(project), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _sha256(path: Path) -> str | None:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
