"""What a stage has come to: small, JSON, enough for later stages, for gates, and for a pipeline that starts there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from algorithms.gates import Metric, judge, parse_gate
from algorithms.readings import Reading, reading
from flows.checks.drift import fingerprint
from flows.config.pipeline import PipelineConfig, StageConfig
from flows.config.stages import stage_config
from tasks.run_folder import RunFolder

Evaluation = dict[str, Any]
"""An evaluation as a training flow's summary has it: `EvaluationOutcome`, without its bill."""


class GateOutcome(BaseModel):
    """What a stage's gate said, and what was to be done where it did not hold."""

    model_config = ConfigDict(frozen=True)

    require: str
    on_fail: str
    passed: bool
    message: str


class StageOutcome(BaseModel):
    """A finished stage: the state and adapter it left, what was measured, what it cost.

    `fingerprint` is of the stage's configuration, `data_fingerprint` of its examples: an outcome stands for a stage
    only where both are the same. Its redone part is what attempts were billed beyond `operations` and `tokens`.
    """

    model_config = ConfigDict(frozen=True)

    stage: str
    algorithm: str
    fingerprint: str
    data_fingerprint: str | None = None
    provider: str
    model: str
    rank: int
    alpha: float
    state_id: str
    artifact_id: str
    adapter: str
    adapter_sha256: str
    evaluation_before: Evaluation | None = None
    evaluation_after: Evaluation | None = None
    cycles: int
    operations: dict[str, int]
    tokens: dict[str, int]
    planned: dict[str, Any] | None = None
    redone: dict[str, Any] | None = None
    gate: GateOutcome | None = None
    seconds: float
    flow_run_id: str
    run_folder: str
    pipeline_flow_run_id: str = Field(description="The pipeline's run that trained it.")


def stage_fingerprint(pipeline: PipelineConfig, stage: StageConfig) -> str:
    """Of what decides what a stage trains: its configuration, in which its weights and teacher are named by stage."""
    table = stage_config(pipeline, stage).model_dump(mode="json")
    return fingerprint({"algorithm": stage.algorithm, "config": table})


def stage_outcome(
    pipeline: PipelineConfig,
    stage: StageConfig,
    summary: Mapping[str, Any],
    *,
    data_fingerprint: str | None,
    flow_run_id: str,
) -> StageOutcome:
    """The outcome, from what the stage's training flow has returned."""
    lora = stage_config(pipeline, stage).lora
    taken = {name: summary[name] for name in StageOutcome.model_fields if name in summary}
    return StageOutcome(
        **taken,
        stage=stage.name,
        fingerprint=stage_fingerprint(pipeline, stage),
        data_fingerprint=data_fingerprint,
        rank=lora.rank,
        alpha=lora.alpha,
        pipeline_flow_run_id=flow_run_id,
    )


def require_own(stage: StageConfig, summary: Mapping[str, Any], folder: Path, name: str) -> None:
    """Make sure that a summary is of the stage: its algorithm's, in the run folder `name` within the pipeline's.

    Raises:
        RuntimeError: it is another stage's. Prefect matches subflows by order of call; were the order ever to differ, a
            stage would go untrained in a pipeline that ends Completed.
    """
    own = {place.name for place in RunFolder.places(folder, name, summary["flow_run_id"])}
    if summary["algorithm"] != stage.algorithm or Path(summary["run_folder"]).name not in own:
        raise RuntimeError(
            f"stage {stage.name!r} was handed the result of {summary['algorithm']} in {summary['run_folder']}. "
            "Please report this; nothing has been trained on it"
        )


def judged(stage: StageConfig, outcome: StageOutcome, earlier: Mapping[str, StageOutcome]) -> StageOutcome:
    """The outcome with what the stage's gate says of it; as it is where there is no gate."""
    if stage.require is None:
        return outcome.model_copy(update={"gate": None})

    def read(metric: Metric) -> Reading | None:
        of = outcome if metric.stage in (None, stage.name) else earlier[str(metric.stage)]
        return reading(of.evaluation_after if metric.when == "eval" else of.evaluation_before, metric.name)

    found = judge(parse_gate(stage.require), read)
    gate = GateOutcome(require=stage.require, on_fail=stage.on_fail, passed=found.passed, message=found.message)
    return outcome.model_copy(update={"gate": gate})
