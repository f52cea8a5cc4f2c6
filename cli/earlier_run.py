"""A run as its folder has it on record: what it ran with, where, and what of that may change.

What there is to say of one algorithm's run alone is in `cli.earlier_training`, of a pipeline's in
`cli.earlier_pipeline`.
"""

from __future__ import annotations

import shlex
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, NamedTuple, Self, TypeVar, cast
from uuid import UUID

from prefect.flows import Flow

from cli.failures import UsageError
from cli.run_data import Endpoints, is_at_work
from flows.checks.drift import Change
from flows.config.budget import OF_THE_RUN
from flows.load_config import AnyConfig, load_config, parse_config, with_overrides
from tasks.run_folder import RunFolder
from tasks.stopped import digits, stopped_by_budget, used_up

C = TypeVar("C", bound=AnyConfig)

IDENTITY = ("name", "output_dir")
"""Fields that say which run it is."""

WRITTEN_AGAIN = "restore it from a copy; or delete it, and a resume writes it again"
"""The way out of a damaged file that follows from the finished blocks."""


class NewestState(NamedTuple):
    """The last saved state of a run, and what of the run ended in it."""

    state_id: str
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierRun(ABC, Generic[C]):
    """What the earlier attempts of a run have left on record.

    `config` is what it ran with, `asked` what it is to go on with: the same, until `asking` says otherwise.
    """

    folder: Path
    flow_run_id: UUID
    algorithm: str
    config: C
    asked: C
    endpoints: Endpoints | None
    summary: dict[str, Any] | None

    @property
    @abstractmethod
    def flow(self) -> Flow[..., Any]:
        """What is run once more."""

    @property
    @abstractmethod
    def newest_state(self) -> NewestState | None:
        """What it would go on from; None where nothing has been saved."""

    @abstractmethod
    def check_inputs(self) -> None:
        """Check what is asked for, without an endpoint.

        Raises:
            ConfigError, DataError, RenderingError, ModelError: it cannot be used.
        """

    @abstractmethod
    def differences(self) -> dict[str, Change]:
        """Every field that decides what is trained, or where it lies, and differs: (recorded, asked for)."""

    @abstractmethod
    def require_allowed(self, *, allow_drift: bool) -> None:
        """Make sure that what differs from the recorded configuration may, and is meant.

        Raises:
            UsageError: shows what differs, field by field.
        """

    def asking(self, path: Path | None, overrides: Iterable[str]) -> Self:
        """The same with the configuration that is asked for: a file's, else the recorded one, with overrides.

        A file that leaves the run's name and its folder's place open means those of the run.

        Raises:
            ConfigError: it cannot be used.
            UsageError: it is another algorithm's.
        """
        if path is None:
            table = {**self.config.model_dump(mode="json"), "algorithm": self.algorithm}
            # The recorded one has been read, so a mistake is an override's.
            algorithm, config = parse_config(with_overrides(table, overrides), where="--set")
        else:
            algorithm, config = load_config(path, overrides)
            own = {"name": self.config.name, "output_dir": self.config.output_dir}
            config = config.model_copy(
                update={field: value for field, value in own.items() if field not in config.model_fields_set}
            )
        if algorithm != self.algorithm:
            raise UsageError(f"{self.folder} is a run of {self.algorithm}, which cannot become one of {algorithm}")
        return replace(self, asked=cast("C", config))  # of the same algorithm, so of the same class

    @property
    def is_over(self) -> bool:
        """Whether there is nothing to go on with: it has finished, and has no other budget now than stopped it."""
        if self.summary is None:
            return False
        return stopped_by_budget(self.summary) is None or self.asked.budget == self.config.budget

    def require_as_it_is(self) -> None:
        """Make sure that of a finished run nothing else is asked than what it is.

        Raises:
            UsageError: names what differs.
        """
        if differing := self.differences():
            raise UsageError(
                f"{self.folder} is finished: a changed {' or '.join(differing)} has no effect. {self.to_train_on}"
            )

    def require_budget(self) -> None:
        """Make sure that no limit of what is asked for has been used up before.

        Raises:
            UsageError: names it, and what is used.
        """
        if told := used_up(self.summary, self._limits()):
            raise UsageError(told)

    def likely_too_little(self) -> str | None:
        """That the limit which has stopped it will likely do so again, in a sentence; None where nothing says so."""
        reached = stopped_by_budget(self.summary)
        if self.summary is None or reached is None:
            return None
        limit, enough = self._limits().get(reached), self.summary["budget"].get("go_on_with")
        if limit is None or enough is None or limit >= enough:
            return None
        return (
            f"{reached} = {digits(limit)} will likely stop it again before its end, perhaps before its next block; "
            f"{digits(enough)} would likely bring it there"
        )

    def _limits(self) -> dict[str, float]:
        """Those that are asked for, by their paths."""
        return {f"budget.{field}": limit for field, limit in self.asked.budget.limits(OF_THE_RUN).items()}

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

    def moved(self) -> dict[str, Change]:
        """What of the run's name and its folder's place is asked to be another: (recorded, asked for)."""
        old, new = (one.model_dump(mode="json", include=set(IDENTITY)) for one in (self.config, self.asked))
        return {path: (old[path], new[path]) for path in IDENTITY if old[path] != new[path]}

    @property
    def to_train_on(self) -> str:
        """How to go on from what a run has come to. The states of a run's own gateway go with the run."""
        newest = self.newest_state
        if newest is None or (self.endpoints and self.endpoints.gateway_data_dir):
            return "To train on, start a new run"
        return f'To train on, start a new run with model.initial_state_id = "{newest.state_id}"'
