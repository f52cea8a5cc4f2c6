"""A pipeline: stages that train one after another, each with its algorithm's own configuration."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from algorithms.names import did_you_mean
from flows.config import CONFIGS, ApprovalConfig, ConfigError
from flows.config.sections import CredentialsBlock, Id, RunName, Section
from flows.config.stage_problems import problems

PIPELINE = "pipeline"
"""What stands for `algorithm` in a pipeline's file and on its record."""

StartFrom = Literal["base", "weights", "state"]
StageName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,39}$")]


def _known(algorithm: str) -> str:
    if algorithm not in CONFIGS:
        raise ValueError(f"unknown; {did_you_mean(algorithm, CONFIGS)}known: {', '.join(sorted(CONFIGS))}")
    return algorithm


class StageConfig(Section):
    """A stage: what is trained, where its weights come from, and what must hold of it before the next one begins."""

    name: StageName = Field(..., description="Name of the stage, unique in the pipeline; left out: its algorithm's.")
    algorithm: Annotated[str, AfterValidator(_known)] = Field(
        ..., description="How it trains.", json_schema_extra={"enum": list(CONFIGS)}
    )
    config: dict[str, Any] = Field(
        default_factory=dict,
        description="The algorithm's own configuration (docs/configuration.md); in a file also the path of one.",
    )
    start_from: StartFrom | None = Field(
        None,
        description='"weights": those of an earlier stage, with a fresh optimizer; "state": its optimizer too; "base": '
        "what config.model says. Default: base for the first stage, weights for the others.",
    )
    start_stage: StageName | None = Field(
        None, description="The earlier stage whose weights those are; default: the one before."
    )
    teacher_from: StageName | None = Field(
        None, description="The earlier stage that is the teacher, for an algorithm with one; default: config.teacher."
    )
    require: str | None = Field(
        None,
        description='A gate: what must hold when the stage is done, "eval.accuracy >= 0.8" or "eval.accuracy >= 0.9 * '
        'rl.eval.accuracy".',
    )
    on_fail: Literal["stop", "pause", "continue"] = Field(
        "stop", description="Where the gate does not hold: fail the pipeline, ask a person, or go on with a warning."
    )

    @model_validator(mode="before")
    @classmethod
    def _named(cls, table: Any) -> Any:
        if isinstance(table, dict) and table.get("name") is None and "algorithm" in table:
            return {**table, "name": table["algorithm"]}
        return table


class PipelineConfig(Section):
    """Stages that train one after another: SFT, then RL, then distillation, say."""

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
    shared: dict[str, Any] = Field(
        default_factory=dict,
        description="Settings of every stage whose algorithm has them; what a stage's config says goes before.",
    )
    stages: list[StageConfig] = Field(..., min_length=1, max_length=50, description="In the order they train.")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if found := problems(self):
            raise ConfigError("\n".join(found))
        return self

    def numbered(self) -> Iterator[tuple[int, StageConfig]]:
        """The stages, counted from 1 as people do."""
        return iter(enumerate(self.stages, 1))

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
