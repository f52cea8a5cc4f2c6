"""From a TOML file and `--set a.b=c` to a checked configuration; every mistake names the field and the way out."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from algorithms.names import did_you_mean
from flows.config import CONFIGS, ConfigError, FlowConfig
from flows.config.mistakes import mistakes
from flows.overrides import with_overrides

__all__ = ["CONFIGS", "AnyConfig", "ConfigError", "load_config", "parse_config", "with_overrides"]

AnyConfig = FlowConfig
"""What a configuration file can say."""


def load_config(path: Path, overrides: Iterable[str] = ()) -> tuple[str, FlowConfig]:
    """Read a TOML file, put `a.b=c` overrides over it, and check it: (algorithm, configuration).

    `a.b=none` takes a field of the file away: TOML has no value for "not set".

    Raises:
        ConfigError: the file is missing or not TOML, names no known algorithm, or a field is unknown or out of range.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; `whitney init grpo` writes a commented one to start from") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None
    return parse_config(with_overrides(table, overrides), where=str(path))


def parse_config(table: Mapping[str, Any], *, where: str = "configuration") -> tuple[str, FlowConfig]:
    """Check a table that carries `algorithm` beside the algorithm's own fields.

    Raises:
        ConfigError: as for `load_config`.
    """
    fields = dict(table)
    known = ", ".join(sorted(CONFIGS))
    if "algorithm" not in fields:
        raise ConfigError(f'{where}: algorithm is missing: begin with algorithm = "grpo", say; known: {known}')
    algorithm = fields.pop("algorithm")
    if not isinstance(algorithm, str) or algorithm not in CONFIGS:
        hint = did_you_mean(str(algorithm), CONFIGS)
        raise ConfigError(f"{where}: algorithm = {algorithm!r} is unknown; {hint}known: {known}")
    model = CONFIGS[algorithm]
    try:
        return algorithm, model.model_validate(fields)
    except ValidationError as error:
        raise ConfigError("\n".join(f"{where}: {line}" for line in mistakes(model, error))) from None
