"""A configuration's data, read once a process: what a command has checked, the run it starts does not read again."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from flows.config import ConfigError, FlowConfig
from tasks.data import REASONING_GYM, DataSet, DataSource
from tasks.datasets import SHIPPED

KEPT = 2
"""Data sets that are kept: those of two configurations side by side, or of two stages."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is to be read; the same by its `key`, in which is when each file was last changed."""

    key: tuple[object, ...]
    config: FlowConfig = field(compare=False)
    source: DataSource = field(compare=False)


def read(config: FlowConfig) -> DataSet:
    """The examples, as the algorithm needs them.

    Raises:
        ConfigError: a setting of `[data]` is without effect.
        DataError: they cannot be read.
    """
    source = _source(config)
    files = [Path(source.source), *([source.heldout] if source.heldout else [])]
    return _read(_Asked((type(config).read_data, repr(source), *map(_stamp, files)), config, source))


@lru_cache(maxsize=KEPT)
def _read(asked: _Asked) -> DataSet:
    return asked.config.read_data(asked.source)


def _stamp(file: Path) -> tuple[str, int, int, int] | None:
    """What a file is told from others and from a changed one by; None where there is none."""
    try:
        found = file.stat()
    except OSError:
        return None
    return str(file.resolve()), found.st_ino, found.st_size, found.st_mtime_ns


def _source(config: FlowConfig) -> DataSource:
    """Raises ConfigError for a setting that would be without effect, which is a misunderstanding."""
    section, fraction = config.data, config.heldout_by_default
    if section.heldout_fraction is not None and (section.heldout or section.source in SHIPPED):
        why = "data.heldout names a file" if section.heldout else f"{section.source} has a split of its own"
        raise ConfigError(f"data.heldout_fraction = {section.heldout_fraction} has no effect: {why}; leave it out")
    if section.reasoning_gym and not section.source.startswith(REASONING_GYM):
        raise ConfigError(f"data.reasoning_gym has no effect: data.source is not {REASONING_GYM}TASK")
    return DataSource(
        source=section.source,
        heldout=Path(section.heldout) if section.heldout else None,
        heldout_fraction=fraction if section.heldout_fraction is None else section.heldout_fraction,
        limit=section.limit,
        reasoning_gym=section.reasoning_gym,
    )
