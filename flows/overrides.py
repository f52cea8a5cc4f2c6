"""`--set a.b=c`: a value put over what a file says, addressed by its path."""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from algorithms.names import did_you_mean
from flows.config import ConfigError

NOT_SET = ("none", "null")
"""What `--set` takes for "not set"; in quotes each is a text like any other."""


def with_overrides(table: Mapping[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """A table with `a.b=c` put over it, one after another; the table itself stays as it is.

    An entry of a list of tables is addressed by its `name` (of a stage without one: by its algorithm), or by its place,
    from 0, as in the messages: `stages.rl.config.cycles=3`, `stages.1.config.cycles=3`, `rewards.0.weight=2`.

    Raises:
        ConfigError: an override is not written so, leads through something that is no table, or to no entry.
    """
    changed = copy.deepcopy(dict(table))
    for override in overrides:
        _apply(changed, override)
    return changed


def _apply(table: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set {override!r}: write it as field.name=value")
    *parents, last = key.strip().split(".")
    if text.strip().lower() in NOT_SET:
        _take_away(table, [*parents, last], override)
        return
    here: Any = table
    for name in parents:
        here = _entry(here, name, override) if isinstance(here, list) else here.setdefault(name, {})
        if not isinstance(here, dict | list):
            raise ConfigError(f"--set {override!r}: {name!r} is not a table")
    if isinstance(here, list):
        raise ConfigError(f"--set {override!r}: {parents[-1]} is a list of tables; name a field of one of them")
    here[last] = _toml_value(text.strip())


def _take_away(table: dict[str, Any], path: list[str], override: str) -> None:
    """Remove a field; nothing to do where the file does not have it, or not even its section."""
    here: Any = table
    for name in path[:-1]:
        if isinstance(here, list):
            here = _entry(here, name, override)
        else:
            here = here.get(name) if isinstance(here, dict) else None
    if isinstance(here, dict):
        here.pop(path[-1], None)


def _entry(entries: Sequence[Any], wanted: str, override: str) -> Any:
    """The table of a list that is meant.

    Raises:
        ConfigError: none is called so, and there is none at that place.
    """
    names = [_name(entry) for entry in entries]
    if wanted in names:
        return entries[names.index(wanted)]
    if wanted.isdecimal() and int(wanted) < len(entries):
        return entries[int(wanted)]
    known = [name for name in names if name]
    hint = did_you_mean(wanted, known) if known else ""
    places = f"0 to {len(entries) - 1}" if entries else "nothing: the list is empty"
    raise ConfigError(
        f"--set {override!r}: nothing there is called {wanted!r}; {hint}known: {', '.join([*known, places])}"
    )


def _name(entry: Any) -> str | None:
    """What an entry is called; a stage that has no name is called as its algorithm."""
    name = entry.get("name", entry.get("algorithm")) if isinstance(entry, dict) else None
    return name if isinstance(name, str) else None


def _toml_value(text: str) -> Any:
    """The value as TOML reads it; what is not TOML is a bare string, so that a shell needs no nested quotes."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
