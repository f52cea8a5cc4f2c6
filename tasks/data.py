"""Data sets: where examples come from, which are held out, and in which order they are used.

Everything here is a function of its arguments: the split by a hash of each question, the order of an epoch by a
counter-based generator, the place in it by the cycle. A run that is resumed needs no saved cursor.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from algorithms.names import did_you_mean
from tasks import reasoning
from tasks.datasets import SHIPPED
from tasks.examples import DataError, Example
from tasks.jsonl import read_jsonl

REASONING_GYM = reasoning.PREFIX

__all__ = ["DataError", "DataSet", "DataSource", "Example", "batch", "fingerprint", "load", "split"]


@dataclass(frozen=True, slots=True)
class DataSource:
    """Where examples come from.

    `source` is the name of a shipped set, "reasoning-gym:TASK", or the path of a JSONL file. Held out is what the file
    `heldout` holds; else a shipped set's own split; else `heldout_fraction` of the questions, chosen by hash. `limit`
    keeps the first so many training examples. `allow_overlap` lets questions of the held-out file be trained on.
    """

    source: str
    heldout: Path | None = None
    heldout_fraction: float = 0.1
    limit: int | None = None
    reasoning_gym: Mapping[str, Any] = field(default_factory=dict)
    allow_overlap: bool = False


@dataclass(frozen=True, slots=True)
class DataSet:
    """Examples to train on and held out, the SHA-256 of both, and a sentence that says what they are."""

    train: tuple[Example, ...]
    heldout: tuple[Example, ...]
    fingerprint: str
    description: str
    warnings: tuple[str, ...] = ()


Reader = Callable[[Path], Sequence[Example]]


def load(source: DataSource, read: Reader = read_jsonl) -> DataSet:
    """Read, split and check a data set; `read` reads its files.

    Raises:
        DataError: an unknown source, a malformed or empty file, an empty side of the split, a question on both sides.
    """
    if source.heldout is not None:
        train: Sequence[Example] = _everything(source, read)
        heldout: Sequence[Example] = read(source.heldout)
        how = f"held out: the file {source.heldout.name}"
    elif source.source in SHIPPED:
        train, heldout = SHIPPED[source.source]()
        how = "held out: the set's own split, by question"
    else:
        train, heldout = split(_everything(source, read), source.heldout_fraction)
        how = f"held out: {source.heldout_fraction:.0%} of the questions, by hash"
    warnings = _check_overlap(train, heldout, allowed=source.allow_overlap)
    train = train[: source.limit]
    if not train:
        raise DataError(f"{source.source}: no training example is left (heldout_fraction={source.heldout_fraction})")
    description = f"{source.source}: {len(train)} training examples, {len(heldout)} held out; {how}"
    return DataSet(tuple(train), tuple(heldout), fingerprint([*train], [*heldout]), description, warnings)


def split(examples: Iterable[Example], heldout_fraction: float) -> tuple[list[Example], list[Example]]:
    """Hold out a share of the questions, by a hash of each one's `key`: adding examples moves none of the others.

    Raises:
        DataError: a fraction outside [0, 1), or one that leaves a side without an example.
    """
    if not 0 <= heldout_fraction < 1:
        raise DataError(f"heldout_fraction is {heldout_fraction}: it must be at least 0 and below 1")
    sides: tuple[list[Example], list[Example]] = ([], [])
    for item in examples:
        digest = hashlib.sha256(f"heldout/{item.key}".encode()).digest()
        sides[int.from_bytes(digest[:8], "big") / 2**64 < heldout_fraction].append(item)
    train, heldout = sides
    if not train or (heldout_fraction and not heldout):
        raise DataError(
            f"heldout_fraction={heldout_fraction} of {len(train) + len(heldout)} examples leaves {len(train)} to train "
            f"on and {len(heldout)} held out: name a held-out file, or change the fraction (0 holds nothing out)"
        )
    return train, heldout


def fingerprint(*sides: Sequence[Example]) -> str:
    """SHA-256 of the examples' whole content in their order, side by side: of one JSON text, encoded piece by piece.

    Of a million examples that is seconds, where `dataclasses.asdict` and one long text were minutes.
    """
    digest, encode = hashlib.sha256(), json.JSONEncoder(sort_keys=True, ensure_ascii=False).encode
    names_of: dict[type[Example], tuple[str, ...]] = {}
    for number, side in enumerate(sides):
        digest.update(b", [" if number else b"[[")
        for place, item in enumerate(side):
            if (kind := type(item)) not in names_of:
                names_of[kind] = tuple(one.name for one in fields(kind))
            row = {name: getattr(item, name) for name in names_of[kind]}
            digest.update(f"{', ' if place else ''}{encode(row | {'extra': dict(item.extra)})}".encode())
        digest.update(b"]")
    digest.update(b"]" if sides else b"[]")
    return digest.hexdigest()


def batch(dataset: DataSet, cycle: int, size: int, seed: int) -> list[Example]:
    """The training examples of a cycle (zero-based): consecutive places in an endless sequence of shuffled epochs.

    Every example is used once before any is used again, and the answer depends on the arguments alone.

    Raises:
        ValueError: a negative cycle or a size below 1.
    """
    if cycle < 0 or size < 1:
        raise ValueError(f"cycle is {cycle} and size is {size}: they must be at least 0 and 1")
    count = len(dataset.train)
    places = (divmod(position, count) for position in range(cycle * size, (cycle + 1) * size))
    return [dataset.train[_epoch_order(count, epoch, seed)[place]] for epoch, place in places]


@lru_cache(maxsize=4)
def _epoch_order(count: int, epoch: int, seed: int) -> tuple[int, ...]:
    key = int.from_bytes(hashlib.sha256(f"epoch/{seed}/{epoch}".encode()).digest()[:16], "big")
    # The raw stream of a named bit generator, which NumPy promises to keep, where it makes no promise for shuffles.
    draws = np.random.Philox(key=key).random_raw(count)
    return tuple(np.argsort(draws, kind="stable").tolist())


def _everything(source: DataSource, read: Reader) -> Sequence[Example]:
    name = source.source
    if name.startswith(REASONING_GYM):
        return reasoning.read_task(name.removeprefix(REASONING_GYM), source.reasoning_gym)
    if name in SHIPPED:
        train, heldout = SHIPPED[name]()
        return [*train, *heldout]
    if not Path(name).is_file():
        raise DataError(
            f"data source {name!r} is unknown: {did_you_mean(name, SHIPPED)}There is no file {Path(name).absolute()}, "
            f"and it is neither a shipped set ({', '.join(SHIPPED)}) nor {REASONING_GYM}TASK"
        )
    return read(Path(name))


def _check_overlap(train: Sequence[Example], heldout: Sequence[Example], *, allowed: bool) -> tuple[str, ...]:
    known = {item.key for item in train}
    shared = [item for item in heldout if item.key in known]
    if not shared:
        return ()
    message = f"{len(shared)} of {len(heldout)} held-out questions are also trained on, {shared[0].id} for one"
    if not allowed:
        raise DataError(f"{message}: the held-out score would measure memory. Take them out of one of the two")
    return (message,)
