"""The lineage of a pipeline: the chain of each stage, and that each begins with what an earlier one has left."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from cli.earlier_pipeline import EarlierPipeline
from cli.failures import UsageError
from cli.find_run import find_run
from cli.run_files import TABLE, read_json
from cli.run_lineage import RESTORE, RunLineage
from flows.config.pipeline import PIPELINE, StageConfig


@dataclass(frozen=True, slots=True)
class HandOff:
    """That a stage begins with an earlier one's state, or is taught by it; `found` is what its own record says."""

    what: str
    stage: str
    state_id: str | None
    found: str | None

    @property
    def broken(self) -> bool:
        """Whether it is another state than the one that was left."""
        return self.state_id != self.found

    def __str__(self) -> str:
        if self.broken:
            return f"BROKEN: {self.what} {self.found}, and stage {self.stage} has left {self.state_id}"
        return f"{self.what} {self.found}, of stage {self.stage}"


@dataclass(frozen=True, slots=True)
class StageLineage:
    """A stage that has begun: where it stands in the pipeline, what it was handed, and its chain."""

    name: str
    number: int
    hand_offs: list[HandOff]
    chain: RunLineage

    @property
    def wrong(self) -> bool:
        """Whether anything does not add up."""
        return self.chain.wrong or any(hand_off.broken for hand_off in self.hand_offs)


@dataclass(frozen=True, slots=True)
class PipelineLineage:
    """What a pipeline's folder records of its stages; those that have not begun are in `to_come`."""

    folder: Path
    flow_run_id: str
    stages: list[StageLineage]
    to_come: list[str]

    @classmethod
    def read(cls, folder: Path) -> Self:
        """From the pipeline's folder and its stages'; of a stage that was taken over, from where it was trained.

        Raises:
            UsageError: a file cannot be read, or is not as a run writes it.
        """
        run = find_run(folder, None, option="lineage")
        assert isinstance(run, EarlierPipeline)
        left = {outcome.stage: outcome for outcome in run.outcomes}
        stages = []
        for number, stage in run.config.numbered():
            place = run.begun.get(stage.name) or (Path(left[stage.name].run_folder) if stage.name in left else None)
            if place is None:
                continue
            states = {name: outcome.state_id for name, outcome in left.items()}
            hand_offs = list(_hand_offs(run, stage, place, states))
            stages.append(
                StageLineage(stage.name, number, hand_offs, RunLineage.read(_there(place, stage)).with_bill())
            )
        begun = {stage.name for stage in stages}
        to_come = [stage.name for stage in run.config.stages if stage.name not in begun]
        return cls(folder, str(run.flow_run_id), stages, to_come)

    @property
    def wrong(self) -> bool:
        """Whether anything does not add up."""
        return any(stage.wrong for stage in self.stages)

    def show(self) -> None:
        """Print it for people: a chain after the other."""
        print(f"{self.folder}: pipeline, flow run {self.flow_run_id}")
        for stage in self.stages:
            print(f"\nStage {stage.number}: {stage.name}")
            for hand_off in stage.hand_offs:
                print(hand_off)
            stage.chain.show()
        if self.to_come:
            print(f"\nnot begun: {', '.join(self.to_come)}")

    def as_json(self) -> dict[str, Any]:
        """The same for machines."""
        return {
            "run_folder": str(self.folder),
            "algorithm": PIPELINE,
            "flow_run_id": self.flow_run_id,
            "unbroken": not self.wrong,
            "stages": [
                {
                    "stage": stage.name,
                    "number": stage.number,
                    "hand_offs": [
                        {"stage": one.stage, "what": one.what, "state_id": one.found, "broken": one.broken}
                        for one in stage.hand_offs
                    ],
                    **stage.chain.as_json(),
                }
                for stage in self.stages
            ],
            "not_begun": self.to_come,
        }


def _hand_offs(run: EarlierPipeline, stage: StageConfig, place: Path, left: dict[str, str]) -> Iterator[HandOff]:
    """What the stage was to be handed, beside what its own record says that it was."""
    record = (read_json(place / "config.json", TABLE, RESTORE) or {}).get("config", {})
    if start := run.config.starts_at(stage):
        found = record.get("model", {}).get("initial_state_id")
        yield HandOff("begins with the weights of state", start, left.get(start), found)
    if teacher := stage.teacher_from:
        found = (record.get("teacher") or {}).get("state_id")
        yield HandOff("is taught by state", teacher, left.get(teacher), found)


def _there(place: Path, stage: StageConfig) -> Path:
    if not (place / "config.json").is_file():
        raise UsageError(f"stage {stage.name} was trained in {place}, which is gone; {RESTORE}")
    return place
