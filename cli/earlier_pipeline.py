"""A pipeline's run as its folder has it on record: which stages are finished or begun, and what may still change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from prefect.flows import Flow
from pydantic import TypeAdapter

from cli.earlier_run import IDENTITY, WRITTEN_AGAIN, EarlierRun, NewestState
from cli.failures import UsageError
from cli.run_files import SAVED_STATE, read_lines
from flows.checks.drift import Change, changes, in_lines
from flows.config.pipeline import PipelineConfig, StageConfig
from flows.config.stages import stage_config
from flows.pipeline import pipeline
from flows.stages.checks import check_pipeline_inputs
from flows.stages.outcome import StageOutcome

STAGE_OUTCOME = TypeAdapter(StageOutcome)

GATE = ("require", "on_fail")
"""What of a stage says whether to go on behind it, and nothing of how it trains."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierPipeline(EarlierRun[PipelineConfig]):
    """`outcomes` are those of the finished stages, `begun` the folders of all that have begun, by stage."""

    outcomes: list[StageOutcome]
    begun: dict[str, Path]

    @classmethod
    def read(cls, folder: Path, config: PipelineConfig, **known: Any) -> Self:
        """With what its folder says of its stages.

        Raises:
            UsageError: stages.jsonl is damaged.
        """
        begun = {stage.name: _stage_folder(folder, number, stage) for number, stage in config.numbered()}
        return cls(
            folder=folder,
            config=config,
            asked=config,
            outcomes=read_lines(folder / "stages.jsonl", STAGE_OUTCOME, WRITTEN_AGAIN),
            begun={name: path for name, path in begun.items() if path is not None},
            **known,
        )

    @property
    def flow(self) -> Flow[..., Any]:
        """The pipeline's."""
        return pipeline

    @property
    def finished(self) -> list[str]:
        """Names of the stages that have an outcome."""
        return [outcome.stage for outcome in self.outcomes]

    @property
    def newest_state(self) -> NewestState | None:
        """Of the stage that has begun last; where that has saved none, of the last that is finished."""
        for name, folder in reversed(self.begun.items()):
            if name not in self.finished and (rows := read_lines(folder / "states.jsonl", SAVED_STATE, WRITTEN_AGAIN)):
                return NewestState(rows[-1].state_id, f"cycle {rows[-1].cycle + 1} of stage {name}")
        if not self.outcomes:
            return None
        return NewestState(self.outcomes[-1].state_id, f"stage {self.outcomes[-1].stage} of this run")

    def check_inputs(self) -> None:
        """Of every stage."""
        check_pipeline_inputs(self.asked)

    def differences(self) -> dict[str, Change]:
        """Every field, by its path in the file, that decides what is trained or whether to go on, and differs."""
        found = self.moved()
        for name in dict.fromkeys(stage.name for stage in (*self.config.stages, *self.asked.stages)):
            found |= {f"stages.{name}{path}": change for path, change in stage_changes(self.config, self.asked, name)}
            found |= {f"stages.{name}{path}": change for path, change in _gate_changes(self.config, self.asked, name)}
        return found

    def require_allowed(self, *, allow_drift: bool) -> None:
        """Make sure that what differs is of stages that have not begun, or of gates, and is meant.

        Raises:
            UsageError: shows what differs, field by field.
        """
        differing = self.differences()
        if fixed := {path: change for path, change in differing.items() if self._is_fixed(path)}:
            raise UsageError(
                f"{self.folder} cannot go on with another configuration of what has been trained or begun "
                f"({', '.join(dict.fromkeys([*self.finished, *self.begun])) or 'nothing yet'}), nor under another name:"
                f"\n{in_lines(fixed)}\nLeave that as it was, or start a new run"
            )
        if differing and not allow_drift:
            raise UsageError(
                f"{self.folder} began with another configuration:\n{in_lines(differing)}\n"
                "That changes no stage that has begun, but gates or later stages. If it is meant: --allow-drift. "
                "Without CONFIG and --set the recorded one runs"
            )

    def _is_fixed(self, path: str) -> bool:
        stage, _, field = path.removeprefix("stages.").partition(".")
        if path in IDENTITY or field == "place":
            return path in IDENTITY or stage in (*self.finished, *self.begun)
        return stage in (*self.finished, *self.begun) and field not in GATE


def _stage_folder(folder: Path, number: int, stage: StageConfig) -> Path | None:
    """Where the stage trains; a name that was taken has an ending."""
    found = [path for path in folder.glob(f"{number}-{stage.name}*") if (path / "config.json").is_file()]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def stage_changes(old: PipelineConfig, new: PipelineConfig, name: str) -> Iterator[tuple[str, Change]]:
    """What differs in what a stage trains, or in its place; a stage that is only in one of the two differs as a whole.

    The stages that its weights and its teacher are of stand in its configuration, in the place of their states.
    """
    before, now = _record(old, name), _record(new, name)
    if before is None or now is None:
        yield "", (before and f"a stage of {before['algorithm']}", now and f"a stage of {now['algorithm']}")
        return
    yield from ((f".{path}", change) for path, change in changes(before, now).items())
    if before["place"] != now["place"]:
        yield ".place", (before["place"], now["place"])


def _gate_changes(old: PipelineConfig, new: PipelineConfig, name: str) -> Iterator[tuple[str, Change]]:
    found = [next((stage for stage in config.stages if stage.name == name), None) for config in (old, new)]
    if None not in found:
        values = [[getattr(stage, field) for stage in found] for field in GATE]
        yield from (
            (f".{field}", (before, now)) for field, (before, now) in zip(GATE, values, strict=True) if before != now
        )


def _record(config: PipelineConfig, name: str) -> dict[str, Any] | None:
    """What decides what a stage trains; None where the pipeline has none of that name."""
    for number, stage in config.numbered():
        if stage.name == name:
            table = stage_config(config, stage).model_dump(mode="json")
            return {"place": number, "algorithm": stage.algorithm, "config": table}
    return None
