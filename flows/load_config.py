"""From a TOML file and `--set a.b=c` to a checked configuration; every mistake names the field and the way out."""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from algorithms.names import did_you_mean
from flows.config import CONFIGS, ConfigError, FlowConfig
from flows.config.mistakes import mistakes

__all__ = ["CONFIGS", "ConfigError", "load_config", "parse_config", "with_overrides"]


NOT_SET = ("none", "null")
"""What `--set` takes for "not set"; in quotes each is a text like any other."""


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


def with_overrides(table: Mapping[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """A table with `a.b=c` put over it, one after another; the table itself stays as it is.

    Raises:
        ConfigError: an override is not written so, or leads through something that is no table.
    """
    changed = copy.deepcopy(dict(table))
    for override in overrides:
        _apply(changed, override)
    return changed


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


def _apply(table: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set {override!r}: write it as field.name=value")
    *parents, last = key.strip().split(".")
    if text.strip().lower() in NOT_SET:
        _take_away(table, [*parents, last])
        return
    here = table
    for name in parents:
        here = here.setdefault(name, {})
        if not isinstance(here, dict):
            raise ConfigError(f"--set {override!r}: {name!r} is not a table")
    here[last] = _toml_value(text.strip())


def _take_away(table: dict[str, Any], path: list[str]) -> None:
    """Remove a field; nothing to do where the file does not have it, or not even its section."""
    here: Any = table
    for name in path[:-1]:
        here = here.get(name) if isinstance(here, dict) else None
    if isinstance(here, dict):
        here.pop(path[-1], None)


def _toml_value(text: str) -> Any:
    """The value as TOML reads it; what is not TOML is a bare string, so that a shell needs no nested quotes."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
