"""`whitney init`: a commented configuration, or price file, to start from."""

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
        What to train with, e.g. grpo or sft; or pipeline, for several one after another; or prices, for `whitney plan`.
    path
        The file to write; default: ALGORITHM.toml here.
    force
        Write over a file that is there.
    """
    from algorithms.names import did_you_mean
    from cli.config_pages import starter_pipeline, starter_toml
    from cli.price_file import PRICES, starter_prices
    from flows.config.pipeline import PIPELINE
    from flows.load_config import CONFIGS

    known = [*CONFIGS, PIPELINE, PRICES]
    if algorithm not in known:
        hint = did_you_mean(algorithm, known)
        raise UsageError(f"unknown algorithm {algorithm!r}: {hint}known: {', '.join(sorted(known))}")
    target = path or Path(f"{algorithm}.toml")
    starters = {PIPELINE: starter_pipeline, PRICES: starter_prices}
    text = starters[algorithm](str(target)) if algorithm in starters else starter_toml(algorithm)
    try:
        with target.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"{target} is there already: name another file, or say --force to write over it") from None
    except OSError as error:
        raise UsageError(f"{target} cannot be written: {error.strerror}") from error
    then = f"whitney plan CONFIG --prices {target}" if algorithm == PRICES else f"whitney run {target}"
    print(f"{target}: edit it, then  {then}")
    return 0
