"""A run as its folder has it on record: how far it came, what it ran with, and what of that may change."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from uuid import UUID

from cli.failures import UsageError
from cli.run_data import Endpoints, is_at_work
from cli.run_files import SAVED_STATE, TABLE, read_json, read_lines
from flows.checks.drift import Change, changes, in_lines, is_fixed
from flows.config import FlowConfig
from flows.load_config import load_config, parse_config, with_overrides
from tasks.run_folder import RunFolder

IDENTITY = ("name", "output_dir")
"""Fields that say which run it is."""

WRITTEN_AGAIN = "restore it from a copy; or delete it, and a resume writes it again"
"""The way out of a damaged file that follows from the finished blocks."""


@dataclass(frozen=True, slots=True)
class EarlierRun:
    """What the earlier attempts of a run have left on record. `cycles_trained` are those of finished blocks."""

    folder: Path
    flow_run_id: UUID
    algorithm: str
    config: FlowConfig
    endpoints: Endpoints | None
    cycles_trained: int
    newest_state_id: str | None
    summary: dict[str, Any] | None

    @classmethod
    def find(cls, run: Path, output_dir: Path | None) -> Self:
        """The run that is named: by its folder, or by the folder's name in `output_dir` (default: runs).

        Raises:
            UsageError: there is none, or what is there is not the folder of a run that has begun.
        """
        places = [run] if run.is_absolute() else [run, (output_dir or Path("runs")) / run]
        folder = next((place for place in places if (place / "config.json").is_file()), None)
        if folder is None:
            looked = " and ".join(str(place) for place in places)
            raise UsageError(f"--resume {run}: no run folder (looked for config.json in {looked})")
        record = read_json(folder / "config.json", TABLE, "restore it from a copy, or start a new run") or {}
        if "config" not in record:
            raise UsageError(f"{folder}: config.json holds no configuration: this run never began; start it again")
        try:
            flow_run_id = UUID(record["flow_run_id"])
        except (KeyError, TypeError, ValueError):
            raise UsageError(f"{folder}/config.json: flow_run_id is missing, or no id of a flow run") from None
        algorithm, config = _configuration(record, where=f"{folder}/config.json")
        states = read_lines(folder / "states.jsonl", SAVED_STATE, WRITTEN_AGAIN)
        return cls(
            folder=folder,
            flow_run_id=flow_run_id,
            algorithm=algorithm,
            config=config,
            endpoints=Endpoints.read(folder),
            cycles_trained=states[-1].cycle + 1 if states else 0,
            newest_state_id=states[-1].state_id if states else None,
            summary=read_json(folder / "summary.json", TABLE, WRITTEN_AGAIN),
        )

    def changed(self, path: Path | None, overrides: Iterable[str]) -> FlowConfig:
        """The configuration that is asked for: a file's, else the recorded one, with overrides.

        A file that leaves the run's name and its folder's place open means those of the run.

        Raises:
            ConfigError: it cannot be used.
            UsageError: it is another algorithm's.
        """
        if path is None:
            table = {**self.config.model_dump(mode="json"), "algorithm": self.algorithm}
            algorithm, config = parse_config(with_overrides(table, overrides), where=f"{self.folder}/config.json")
        else:
            algorithm, config = load_config(path, overrides)
            own = {"name": self.config.name, "output_dir": self.config.output_dir}
            config = config.model_copy(
                update={field: value for field, value in own.items() if field not in config.model_fields_set}
            )
        if algorithm != self.algorithm:
            raise UsageError(f"{self.folder} is a run of {self.algorithm}, which cannot become one of {algorithm}")
        return config

    def require_as_it_is(self, config: FlowConfig) -> None:
        """Make sure that of a finished run nothing else is asked than what it is.

        Raises:
            UsageError: names what differs.
        """
        if differing := self.differences(config):
            raise UsageError(
                f"{self.folder} is finished: a changed {' or '.join(differing)} has no effect. {self._to_train_on}"
            )

    def require_resumable(self, *, embedded: bool | None) -> None:
        """Make sure that nothing else is at work on it, and that its paths mean what they meant.

        Raises:
            UsageError: says what stands in the way.
        """
        if is_at_work(self.folder):
            raise UsageError(f"{self.folder} is being trained by another process; end that first (Ctrl-C closes it)")
        if (lock := self.folder / ".lock").is_dir():
            raise UsageError(f"{lock} is a directory, where a file belongs: remove it")
        own = self.config.output_dir / self.folder.resolve().name
        if own.resolve() != self.folder.resolve():
            began = f": {self.endpoints.directory}" if self.endpoints else ""
            raise UsageError(
                f"{self.folder} is not in output_dir = {str(self.config.output_dir)!r} as seen from here: go to the "
                f"directory where the run began{began}"
            )
        if self.config.name:
            self.require_in_place(self.config.name)
        home, data_dir = (
            (self.endpoints.prefect_home, self.endpoints.gateway_data_dir) if self.endpoints else (None, None)
        )
        for what, data in (("record of finished blocks", home), ("saved states", data_dir)):
            if data is not None and not Path(data).is_dir():
                raise UsageError(f"{self.folder} cannot go on: its {what}, {data}, is gone; start a new run")
        if embedded is not None and embedded != (data_dir is not None):
            where = (
                "in the folder of its own gateway" if data_dir else "at the endpoint it began at, not in a new gateway"
            )
            raise UsageError(f"--{'' if embedded else 'no-'}embedded: the states of this run are {where}; leave it out")

    def require_in_place(self, name: str) -> None:
        """Make sure that the run, which has this name, goes on in this folder: it looks for it by its name and owner.

        Raises:
            UsageError: this one was renamed, or is a copy.
        """
        root, identity = self.config.output_dir, str(self.flow_run_id)
        own = RunFolder.find(root, name, identity)
        if own is None:
            back = next((path for path in RunFolder.places(root, name, identity) if not path.exists()), root / identity)
            raise UsageError(
                f"{self.folder} was renamed: the run would begin another folder. Rename it back: "
                f"mv {shlex.quote(str(self.folder))} {shlex.quote(str(back))}"
            )
        if own.resolve() != self.folder.resolve():
            raise UsageError(f"{self.folder} is a copy: this run goes on in {own}. Resume that")

    def require_allowed(self, config: FlowConfig, *, allow_drift: bool) -> None:
        """Make sure that what differs from the recorded configuration may, and is meant.

        Raises:
            UsageError: shows what differs, field by field.
        """
        differing = self.differences(config)
        if fixed := {path: change for path, change in differing.items() if is_fixed(path) or path in IDENTITY}:
            reasons = {
                "finished blocks are matched by what they began with": any(map(is_fixed, fixed)),
                "the run is found by its name": any(path in IDENTITY for path in fixed),
            }
            why = ", and ".join(reason for reason, holds in reasons.items() if holds)
            raise UsageError(
                f"{self.folder} cannot go on with another {' or '.join(fixed)}: {why}:\n"
                f"{in_lines(fixed)}\nLeave that as it was, or start a new run"
            )
        self._require_untrained(config, differing)
        if differing and not allow_drift:
            raise UsageError(
                f"{self.folder} began with another configuration, and its finished blocks would be mixed with it:\n"
                f"{in_lines(differing)}\n"
                "If that is meant: --allow-drift. Without CONFIG and --set the recorded one runs"
            )

    def differences(self, config: FlowConfig) -> dict[str, Change]:
        """Every field that decides what is trained, or where it lies, and differs: (recorded, asked for)."""
        old, new = (one.model_dump(mode="json") for one in (self.config, config))
        moved = {path: (old[path], new[path]) for path in ("name", "output_dir") if old[path] != new[path]}
        found = changes({"config": old}, {"config": new})
        return moved | {path.removeprefix("config."): change for path, change in found.items()}

    def _require_untrained(self, config: FlowConfig, differing: Iterable[str]) -> None:
        """Raises UsageError where training has come further than what is asked for, or is over."""
        if config.cycles < self.cycles_trained:
            raise UsageError(f"cycles = {config.cycles}: {self.cycles_trained} have been trained already")
        # The last measurement and the export are adopted as they are: cycles trained after them would not be in them.
        over = self.cycles_trained >= self.config.cycles or (self.folder / "samples/evaluation-after.jsonl").exists()
        if over and (late := [path for path in differing if path == "cycles" or path.startswith("stop.")]):
            raise UsageError(
                f"{', '.join(late)}: training is over in {self.folder}, only its end is missing; resume it as it "
                f"is. {self._to_train_on}"
            )

    @property
    def _to_train_on(self) -> str:
        """The states of a run's own gateway go with the run."""
        if self.newest_state_id is None or (self.endpoints and self.endpoints.gateway_data_dir):
            return "To train on, start a new run"
        return f'To train on, start a new run with model.initial_state_id = "{self.newest_state_id}"'


def _configuration(record: dict[str, Any], where: str) -> tuple[str, FlowConfig]:
    """The algorithm and its configuration. Raises UsageError or ConfigError where they cannot be used."""
    recorded = record["config"]
    if not isinstance(recorded, dict):
        raise UsageError(f"{where}: config is no table; restore it from a copy, or start a new run")
    algorithm = {"algorithm": record["algorithm"]} if "algorithm" in record else {}
    return parse_config({**recorded, **algorithm}, where=where)
