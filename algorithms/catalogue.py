"""tinker-nomics as data: what each algorithm keeps in memory, what it takes to run, where it comes from.

`catalogue.toml` has its eleven rows with their ScaleRL curves, the 32 key references and the further reading.
`Algorithm.profile` names the row of an algorithm here, `Algorithm.family` that of the one it is a variant of.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from algorithms.contract import Algorithm
from algorithms.names import did_you_mean
from algorithms.scaling import SigmoidCurve

FILE = Path(__file__).with_suffix(".toml")


@dataclass(frozen=True, slots=True)
class Scaling:
    """A published ScaleRL fit: Llama-3.1-8B on MATH, compute in GB200 hours. R0 was not published.

    Args:
        ceiling: A, a share of problems solved.
        steepness: B.
        midpoint: Cmid, GB200 hours.
    """

    ceiling: float
    steepness: float
    midpoint: float

    def curve(self, start: float) -> SigmoidCurve:
        """The curve of a model that begins at `start`."""
        return SigmoidCurve(start, self.ceiling, self.steepness, self.midpoint)


@dataclass(frozen=True, slots=True)
class Profile:
    """One row.

    Args:
        name: as tinker-nomics writes it.
        full_name: spelt out.
        paper: authors and year.
        models: what is in memory: "policy", "reference", "critic", "reward_model", "teacher".
        critic: whether it trains a critic.
        reward_model: whether it needs a reward model.
        memory: "low" or "high".
        typical_k: optimizer steps on a batch.
        typical_g: completions per prompt; none where nothing is sampled.
        asynchronous: whether rollouts may lag behind the weights.
        notes: what else to know.
        scaling: its published curve, None where there is none.
        references: keys of `references`.
    """

    name: str
    full_name: str
    paper: str
    models: tuple[str, ...]
    critic: bool
    reward_model: bool
    memory: str
    typical_k: tuple[int, ...]
    typical_g: tuple[int, ...]
    asynchronous: bool
    notes: str
    scaling: Scaling | None = None
    references: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reference:
    """A source.

    Args:
        key: what rows call it.
        title: of the paper or page.
        by: who wrote or published it, "" where only the address is known.
        arxiv: its id, "" where it has none.
        note: what it is read for, "" but for the further reading.
    """

    key: str
    title: str
    by: str = ""
    arxiv: str = ""
    note: str = ""

    def __str__(self) -> str:
        where = f"arXiv {self.arxiv}" if self.arxiv else ""
        return " — ".join(part for part in (self.title, self.by, where) if part)


@cache
def profiles() -> dict[str, Profile]:
    """The rows by name, in tinker-nomics's order."""
    return {row["name"]: _profile(row) for row in _data()["profiles"]}


@cache
def references() -> dict[str, Reference]:
    """The 32 key references by key."""
    return {row["key"]: Reference(**row) for row in _data()["references"]}


@cache
def further_reading() -> tuple[Reference, ...]:
    """What to read first."""
    return tuple(Reference(**row) for row in _data()["further_reading"])


def profile_of(row: Algorithm) -> Profile | None:
    """An algorithm's own row, else its family's, which costs the same but is no measurement of it; None without one."""
    name = row.profile or row.family
    return None if name is None else profile(name)


def profile(name: str) -> Profile:
    """A row.

    Raises:
        ValueError: an unknown name.
    """
    if name in profiles():
        return profiles()[name]
    hint = did_you_mean(name, profiles())
    raise ValueError(f"the catalogue has no {name!r}: {hint}it has {', '.join(profiles())}")


def _profile(row: dict[str, Any]) -> Profile:
    lists = ("models", "typical_k", "typical_g", "references")
    fields: dict[str, Any] = {key: tuple(value) if key in lists else value for key, value in row.items()}
    if "scaling" in row:
        fields["scaling"] = Scaling(**row["scaling"])
    return Profile(**fields)


@cache
def _data() -> dict[str, list[dict[str, Any]]]:
    return tomllib.loads(FILE.read_text(encoding="utf-8"))
