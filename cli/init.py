"""`whitney init`: a commented configuration to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from cli.failures import UsageError


def init(algorithm: str, path: Path | None = None, *, force: Annotated[bool, Parameter(negative="")] = False) -> int:
    """Write a commented configuration to start from.

    Parameters
    ----------
    algorithm
        What to train with, e.g. grpo or sft.
    path
        The file to write; default: ALGORITHM.toml here.
    force
        Write over a file that is there.
    """
    from algorithms.names import did_you_mean
    from cli.config_pages import starter_toml
    from flows.load_config import CONFIGS

    if algorithm not in CONFIGS:
        hint = did_you_mean(algorithm, CONFIGS)
        raise UsageError(f"unknown algorithm {algorithm!r}: {hint}known: {', '.join(sorted(CONFIGS))}")
    target = path or Path(f"{algorithm}.toml")
    try:
        with target.open("w" if force else "x", encoding="utf-8") as file:
            file.write(starter_toml(algorithm))
    except FileExistsError:
        raise UsageError(f"{target} is there already: name another file, or say --force to write over it") from None
    except OSError as error:
        raise UsageError(f"{target} cannot be written: {error.strerror}") from error
    print(f"{target}: edit it, then  whitney run {target}")
    return 0
