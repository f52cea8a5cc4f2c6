"""What can be set of one stage of a pipeline, beside its algorithm's own configuration."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from algorithms.names import did_you_mean
from flows.config import CONFIGS
from flows.config.sections import Section

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
