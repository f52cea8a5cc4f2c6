"""Writing a file so that it is either wholly there or not at all, also after a power cut."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path


def write_durably(target: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a neighbouring file, bring it to the disk, and rename it onto `target`."""
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        write(unfinished)
        _sync(unfinished)
        unfinished.replace(target)
        _sync(target.parent)  # the rename itself
    finally:
        unfinished.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
