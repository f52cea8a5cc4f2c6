"""A pipeline: stages that train one after another, each with its algorithm's own configuration."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from flows.config import ConfigError
from flows.config.stage import StageConfig
from flows.config.stage_problems import problems
from flows.config.staged import StagedConfig

__all__ = ["PIPELINE", "PipelineConfig", "StageConfig"]

PIPELINE = "pipeline"
"""What stands for `algorithm` in a pipeline's file and on its record."""


class PipelineConfig(StagedConfig):
    """Stages that train one after another: SFT, then RL, then distillation, say."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if found := problems(self):
            raise ConfigError("\n".join(found))
        return self
