"""A run of one algorithm as its folder has it on record: how far it came, and what of its configuration may change."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from prefect.flows import Flow

from cli.earlier_run import IDENTITY, WRITTEN_AGAIN, EarlierRun, NewestState
from cli.failures import UsageError
from cli.run_files import SAVED_STATE, read_lines
from flows import FLOWS
from flows.checks.drift import Change, changes, in_lines, is_fixed
from flows.checks.prepare import check_inputs
from flows.config import FlowConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierTraining(EarlierRun[FlowConfig]):
    """`cycles_trained` are those of finished blocks."""

    cycles_trained: int
    newest_state_id: str | None

    @classmethod
    def read(cls, folder: Path, config: FlowConfig, **known: Any) -> Self:
        """With what its folder says of its blocks.

        Raises:
            UsageError: states.jsonl is damaged.
        """
        states = read_lines(folder / "states.jsonl", SAVED_STATE, WRITTEN_AGAIN)
        return cls(
            folder=folder,
            config=config,
            asked=config,
            cycles_trained=states[-1].cycle + 1 if states else 0,
            newest_state_id=states[-1].state_id if states else None,
            **known,
        )

    @property
    def flow(self) -> Flow[..., Any]:
        """The algorithm's."""
        return FLOWS[self.algorithm]

    @property
    def newest_state(self) -> NewestState | None:
        """The state of the last finished block."""
        if self.newest_state_id is None:
            return None
        return NewestState(self.newest_state_id, f"cycle {self.cycles_trained} of this run")

    def check_inputs(self) -> None:
        """As `flows.checks.prepare.check_inputs`."""
        check_inputs(self.algorithm, self.asked)

    def require_allowed(self, *, allow_drift: bool) -> None:
        """Make sure that what differs from the recorded configuration may, and is meant.

        Raises:
            UsageError: shows what differs, field by field.
        """
        differing = self.differences()
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
        self._require_untrained(differing)
        if differing and not allow_drift:
            raise UsageError(
                f"{self.folder} began with another configuration, and its finished blocks would be mixed with it:\n"
                f"{in_lines(differing)}\n"
                "If that is meant: --allow-drift. Without CONFIG and --set the recorded one runs"
            )

    def differences(self) -> dict[str, Change]:
        """Every field that decides what is trained, or where it lies, and differs: (recorded, asked for)."""
        old, new = (one.model_dump(mode="json") for one in (self.config, self.asked))
        found = changes({"config": old}, {"config": new})
        return self.moved() | {path.removeprefix("config."): change for path, change in found.items()}

    def _require_untrained(self, differing: Iterable[str]) -> None:
        """Raises UsageError where training has come further than what is asked for, or is over."""
        if self.asked.cycles < self.cycles_trained:
            raise UsageError(f"cycles = {self.asked.cycles}: {self.cycles_trained} have been trained already")
        # The last measurement and the export are adopted as they are: cycles trained after them would not be in them.
        over = self.cycles_trained >= self.config.cycles or (self.folder / "samples/evaluation-after.jsonl").exists()
        if over and (late := [path for path in differing if path == "cycles" or path.startswith("stop.")]):
            raise UsageError(
                f"{', '.join(late)}: training is over in {self.folder}, only its end is missing; resume it as it "
                f"is. {self.to_train_on}"
            )
