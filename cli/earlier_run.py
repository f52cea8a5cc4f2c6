"""A run as its folder has it on record: how far it came, what it ran with, and what of that may change."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from uuid import UUID

from cli.failures import UsageError
from cli.run_data import Endpoints, is_at_work
from flows.checks.drift import Change, changes, in_lines, is_fixed
from flows.config import FlowConfig
from flows.load_config import load_config, parse_config, with_overrides

IDENTITY = ("name", "output_dir")
"""Fields that say which run it is."""


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
        record = _read(folder / "config.json")
        if not record or "config" not in record:
            raise UsageError(f"{folder}: config.json holds no configuration: this run never began; start it again")
        try:
            flow_run_id = UUID(record["flow_run_id"])
        except (KeyError, TypeError, ValueError):
            raise UsageError(f"{folder}/config.json: flow_run_id is missing, or no id of a flow run") from None
        algorithm, config = parse_config(
            {**record["config"], "algorithm": record["algorithm"]}, where=f"{folder}/config.json"
        )
        states = _lines(folder / "states.jsonl")
        return cls(
            folder=folder,
            flow_run_id=flow_run_id,
            algorithm=algorithm,
            config=config,
            endpoints=Endpoints.read(folder),
            cycles_trained=states[-1]["cycle"] + 1 if states else 0,
            newest_state_id=states[-1]["state_id"] if states else None,
            summary=_read(folder / "summary.json"),
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
        own = self.config.output_dir / self.folder.resolve().name
        if own.resolve() != self.folder.resolve():
            began = f": {self.endpoints.directory}" if self.endpoints else ""
            raise UsageError(
                f"{self.folder} is not in output_dir = {str(self.config.output_dir)!r} as seen from here: go to the "
                f"directory where the run began{began}"
            )
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


def _read(path: Path) -> dict[str, Any] | None:
    try:
        table: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    return table


def _lines(path: Path) -> list[dict[str, Any]]:
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
