"""What `make learn` runs: an experiment, what it found, and the file that keeps every finding."""

from __future__ import annotations

import hashlib
import json
import os
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from benchmarks.training import STARTERS

Section = Literal["addition", "distillation", "preferences", "discovery", "feedback", "pipeline"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What one experiment came to.

    Attributes:
        figures: numbers by name, as the experiment's section shows them.
        curve: the metric that should move, a value a cycle.
        met: whether the goal of the section is reached.
    """

    figures: dict[str, float]
    curve: list[float]
    met: bool


Measure: TypeAlias = "Callable[[Experiment, Path], Finding]"


@dataclass(frozen=True, slots=True)
class Stage:
    """A run that comes before: its starter, and what differs from it."""

    starter: str
    settings: tuple[str, ...]

    @property
    def path(self) -> Path:
        """The starter's file."""
        return STARTERS / self.starter


@dataclass(frozen=True, slots=True)
class Experiment:
    """A starter with settings of its own, and how it is run and judged.

    Attributes:
        name: the row's name, unique.
        section: which table of the page it stands in.
        starter: file under deployments/configs.
        settings: what differs from the starter, as `--set`'s.
        measure: trains in a folder and tells what it found; a Prefect server is there, gateways are its own.
        first: the run that made the teacher, or the model to start from.
    """

    name: str
    section: Section
    starter: str
    settings: tuple[str, ...]
    measure: Measure
    first: Stage | None = None

    @property
    def path(self) -> Path:
        """The starter's file."""
        return STARTERS / self.starter

    @property
    def stages(self) -> list[Stage]:
        """The runs in their order."""
        own = Stage(self.starter, self.settings)
        return [own] if self.first is None else [self.first, own]

    @property
    def fingerprint(self) -> str:
        """Changes with what the starters say (their comments apart) and the settings: then it is another experiment."""
        parts = [[tomllib.loads(stage.path.read_text("utf-8")), stage.settings] for stage in self.stages]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Record:
    """A finding, and where it came from. `cpu_s`: flow, gateway and engine together."""

    fingerprint: str
    starter: str
    settings: tuple[str, ...]
    commit: str
    wall_s: float
    cpu_s: float
    finding: Finding


class Records:
    """Findings by experiment, in a JSON file that is whole after every one: a table that is cut short goes on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        saved = json.loads(path.read_text("utf-8")) if path.is_file() else {}
        self._records = {
            name: Record(**{**row, "settings": tuple(row["settings"]), "finding": Finding(**row["finding"])})
            for name, row in saved.items()
        }

    def of(self, experiment: Experiment) -> Record | None:
        """The record of just this experiment: same starter, same settings."""
        record = self._records.get(experiment.name)
        return record if record is not None and record.fingerprint == experiment.fingerprint else None

    def keep(self, experiment: Experiment, record: Record) -> None:
        """Put a record in place of an older one of the same name, on disk before this returns."""
        self._records[experiment.name] = record
        rows = {name: asdict(one) for name, one in sorted(self._records.items())}
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        os.replace(new, self.path)  # noqa: PTH105 - atomic, and over what is there


def missing(experiments: Iterable[Experiment], records: Records) -> list[Experiment]:
    """The experiments that have no record yet."""
    return [experiment for experiment in experiments if records.of(experiment) is None]
