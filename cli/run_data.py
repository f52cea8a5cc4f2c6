"""What a run has beside its run folder: the servers that were started for it, and their data.

`.whitney/gateways/` and `.whitney/prefect/` hold a folder for each. It goes when the run has succeeded; when it fails,
is interrupted, killed or stopped by its budget, the states and finished blocks in it are what `whitney run --resume`
goes on from.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, NamedTuple, Self

from filelock import Timeout
from pydantic import TypeAdapter

from cli.failures import CommandFailedError
from cli.run_files import read_json
from tasks.run_folder import RunFolder
from tasks.stopped import stopped_by_budget
from tasks.userinfo import without_userinfo

PROJECT_DATA = Path(".whitney")
ENDPOINTS = "endpoints.json"
BELONGS_TO = "run_folder.txt"

Kind = Literal["gateways", "prefect"]
_TEMPORARY = re.compile(r"\d{8}-\d{6}-(\d+)")
"""Start and process id. Other things are there, too: the demo's Prefect server lives in `prefect/` itself."""


class PrefectAt(NamedTuple):
    """A Prefect API and, where it was started for the run, the folder of its database and persisted results."""

    api_url: str
    home: Path | None = None

    @property
    def shown(self) -> str:
        """The URL for people and files: without a password that may stand in it."""
        return without_userinfo(self.api_url)


class WhitneyAt(NamedTuple):
    """A Whitney endpoint and, where it is a gateway that was started for the run, its data folder."""

    base_url: str
    data_dir: Path | None = None


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Where a run's flow run and its states are. Addresses and folders, never a key.

    A folder is named only where a server was started for the run: to go on, it is started on that folder again.
    `whitney_base_url` is None where a Prefect block names the endpoint. `directory` is where relative paths begin.
    """

    prefect_api_url: str | None
    prefect_home: str | None
    whitney_base_url: str | None
    gateway_data_dir: str | None
    directory: str

    @classmethod
    def of(cls, prefect: PrefectAt, whitney: WhitneyAt | None) -> Self:
        """As the two were found or started."""
        base_url, data_dir = whitney or (None, None)
        return cls(
            prefect_api_url=prefect.shown,
            prefect_home=_absolute(prefect.home),
            whitney_base_url=base_url,
            gateway_data_dir=_absolute(data_dir),
            directory=str(Path.cwd()),
        )

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """What stands in a run folder; None for a run that was not started by this command.

        Raises:
            UsageError: the file is damaged. Without it nobody knows where the run's states are.
        """
        return read_json(
            folder / ENDPOINTS,
            TypeAdapter(cls),
            "restore it from a copy; or delete it, if PREFECT_API_URL and WHITNEY_BASE_URL name where the run began",
        )

    @property
    def prefect(self) -> PrefectAt | None:
        """The Prefect server of the run."""
        home = self.prefect_home
        return PrefectAt(self.prefect_api_url, Path(home) if home else None) if self.prefect_api_url else None

    def record(self, folder: Path, *, stage: bool = False) -> None:
        """Write it into the run folder, and the run folder's path into the folders that belong to it.

        Those are a pipeline's, not its `stage`'s.
        """
        self._write(folder / ENDPOINTS, json.dumps(asdict(self), indent=2) + "\n")
        if stage:
            return
        for own in (self.prefect_home, self.gateway_data_dir):
            if own is not None and _TEMPORARY.fullmatch(Path(own).name):
                self._write(Path(own) / BELONGS_TO, f"{folder.resolve()}\n")

    @staticmethod
    def _write(path: Path, text: str) -> None:
        """Whole or not at all: a run may be killed at any moment."""
        beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)


@contextmanager
def run_data(kind: Kind, former: Path | None = None) -> Iterator[Path]:
    """A folder for a server of the run's own: a new one, or that of the attempt before.

    It goes when the block ends well, unless the run was stopped by its budget. After an error it stays if a run folder
    speaks of it, and where the server did not come up, for its log to be read; else there is nothing to go on with.
    """
    folder = former or PROJECT_DATA / kind / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield folder
    except BaseException as error:
        if former is None and not (folder / BELONGS_TO).exists() and not isinstance(error, CommandFailedError):
            shutil.rmtree(folder, ignore_errors=True)
        raise
    if _TEMPORARY.fullmatch(folder.name) and not _has_stopped(folder):
        shutil.rmtree(folder, ignore_errors=True)


def _has_stopped(folder: Path) -> bool:
    """Whether the run that a server's folder belongs to can be gone on with, though it has ended well."""
    owner = _owner(folder)
    try:
        summary = json.loads((owner / "summary.json").read_text(encoding="utf-8")) if owner else None
    except (OSError, ValueError):
        return False
    return isinstance(summary, dict) and stopped_by_budget(summary) is not None


@dataclass(frozen=True, slots=True)
class Leftover:
    """A folder of `.whitney/` that outlived its run, its size, and the run folder it belongs to, if any does."""

    path: Path
    size_bytes: int
    run_folder: Path | None


def leftovers() -> list[Leftover]:
    """What earlier runs have left under `.whitney/`; what a living process works in is not listed."""
    kinds: tuple[Kind, ...] = ("gateways", "prefect")
    found = [path for kind in kinds if (PROJECT_DATA / kind).is_dir() for path in (PROJECT_DATA / kind).iterdir()]
    left = []
    for path in sorted(found):
        name, owner = _TEMPORARY.fullmatch(path.name), _owner(path)
        if name and not (is_at_work(owner) if owner else lives(int(name[1]))):
            size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
            left.append(Leftover(path, size, owner))
    return left


def is_at_work(run_folder: Path) -> bool:
    """Whether an attempt, in whichever process, is known to be at work on the run of this folder."""
    lock = RunFolder(run_folder, "").lock()
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return True
    except OSError:  # no lock can be had there: an attempt, too, would end at it
        return False
    lock.release()
    return False


def _owner(path: Path) -> Path | None:
    try:
        folder = Path((path / BELONGS_TO).read_text(encoding="utf-8").strip())
    except OSError:
        return None
    return folder if folder.is_dir() else None


def lives(process_id: int) -> bool:
    """Whether there is a process of that id, whoever's it is."""
    if process_id <= 0:  # to os.kill these are groups of processes, and always there
        return False
    try:
        os.kill(process_id, 0)  # signal 0 asks whether the process is there
    except ProcessLookupError:
        return False
    except OSError:  # it is there, and somebody else's
        return True
    return True


def _absolute(path: Path | None) -> str | None:
    return None if path is None else str(path.resolve())
