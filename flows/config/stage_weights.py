"""Whether the weights that a stage begins with fit it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from flows.config import DistillConfig, FlowConfig, RolloutConfig
from flows.config.stage import StageConfig
from flows.config.staged import StagedConfig


def weight_problems(pipeline: StagedConfig, stage: StageConfig, configs: Mapping[str, FlowConfig]) -> Iterator[str]:
    """An adapter can go on only as what it is: of the same model, rank and alpha; an optimizer with its own kind."""
    if not (start := pipeline.starts_at(stage)):
        return
    own, its = configs[stage.name], configs[start]
    pairs = {
        "model.provider": (own.model.provider, its.model.provider),
        "model.name": (own.model.name, its.model.name),
        "lora.rank": (own.lora.rank, its.lora.rank),
        "lora.alpha": (own.lora.alpha, its.lora.alpha),
    }
    for path, (mine, theirs) in pairs.items():
        if mine != theirs:
            yield (
                f".config.{path} = {mine!r}: its weights are those of stage {start!r}, whose {path} is {theirs!r}; "
                'make them the same (`shared` is for that), or set start_from = "base"'
            )
    if stage.start_from == "state" and not _of_a_kind(own, its):
        yield (
            f'.start_from = "state": the optimizer of {pipeline.stage(start).algorithm} has run on another kind of '
            f'loss than that of {stage.algorithm}; "weights" begins with a fresh one'
        )


def _of_a_kind(one: FlowConfig, other: FlowConfig) -> bool:
    """Whether an optimizer's means of one's gradients say something of the other's: same algorithm or family."""
    families = (RolloutConfig, DistillConfig)
    return type(one) is type(other) or any(isinstance(one, kind) and isinstance(other, kind) for kind in families)
