"""A pipeline as it is written, with the relations of its stages; `flows.config.pipeline` has it checked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import Field

from flows.config import ApprovalConfig, BudgetConfig
from flows.config.sections import CredentialsBlock, Id, RunName, Section
from flows.config.stage import StageConfig


class StagedConfig(Section):
    """What can be set of a pipeline, and which of its stages begins where."""

    name: RunName = None
    output_dir: Path = Field(Path("runs"), description="Folder that run folders are made in; stages' are inside it.")
    credentials_block: CredentialsBlock = None
    session_limit: Id | None = Field(
        None,
        description="Prefect global concurrency limit that counts open sessions, for every stage; none is held between "
        "two stages. Default: no limit.",
    )
    skip_unchanged: bool = Field(
        False,
        description="Skip a deployment's run where data and configuration of every stage are those of its last "
        "completed one.",
    )
    approval: ApprovalConfig = Field(default_factory=ApprovalConfig)
    budget: BudgetConfig = Field(
        default_factory=BudgetConfig, description="Of all stages together; a stage may have one of its own beside it."
    )
    shared: dict[str, Any] = Field(
        default_factory=dict,
        description="Settings of every stage whose algorithm has them; what a stage's config says goes before.",
    )
    stages: list[StageConfig] = Field(..., min_length=1, max_length=50, description="In the order they train.")

    def numbered(self) -> Iterator[tuple[int, StageConfig]]:
        """The stages, counted from 1 as people do."""
        return iter(enumerate(self.stages, 1))

    def run_name(self, stage: StageConfig) -> str:
        """The name of a stage's run, and so of its folder within the pipeline's: "2-rl"."""
        return f"{self.stages.index(stage) + 1}-{stage.name}"

    def stage(self, name: str) -> StageConfig:
        """A stage by its name."""
        return next(stage for stage in self.stages if stage.name == name)

    def before(self, stage: StageConfig) -> list[StageConfig]:
        """The stages that are done when `stage` begins."""
        return self.stages[: self.stages.index(stage)]

    def starts_at(self, stage: StageConfig) -> str | None:
        """The name of the stage whose weights `stage` begins with; None where they are its own configuration's."""
        earlier = self.before(stage)
        by_default = "weights" if earlier or stage.start_stage else "base"
        if (stage.start_from or by_default) == "base":
            return None
        return stage.start_stage or (earlier[-1].name if earlier else None)
