"""What algorithms of one kind have in common: all of them, those that sample, those that reward."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from algorithms import Aggregation
from flows.config.sections import (
    DataConfig,
    EvaluationConfig,
    KlConfig,
    LoraSection,
    ModelConfig,
    Name,
    NonNegative,
    OptimizerConfig,
    PositiveInt,
    RewardConfig,
    SamplingConfig,
    Section,
    StopConfig,
)


class FlowConfig(Section):
    """What every algorithm has in common."""

    name: Name | None = Field(None, description="Name of the run and its folder; default: the flow run's name.")
    output_dir: Path = Field(Path("runs"), description="Folder that run folders are made in.")
    seed: Annotated[int, Field(ge=0, lt=2**31)] = Field(0, description="Seeds data order, sampling and LoRA.")
    cycles: PositiveInt = Field(16, description="Cycles: one batch each, and `steps_per_batch` optimizer steps.")
    save_every: PositiveInt = Field(
        1, description="Cycles per block. A block ends in save_state; a Retry repeats at most one block."
    )
    steps_per_batch: Annotated[int, Field(ge=1, le=64)] = Field(
        1, description="Optimizer steps on a cycle's batch, each over the whole batch (K, μ in the GRPO paper)."
    )
    reward_timeout_s: Annotated[float, Field(gt=0)] = Field(
        30.0, description="Hard limit for scoring one completion with a function of yours, in seconds."
    )
    credentials_block: str | None = Field(
        None, description="Prefect block of type Whitney Credentials; default: WHITNEY_BASE_URL and WHITNEY_API_KEY."
    )
    model: ModelConfig = Field(default_factory=ModelConfig)
    lora: LoraSection = Field(default_factory=LoraSection)
    data: DataConfig = Field(default_factory=DataConfig)
    sampling: SamplingConfig = Field(default_factory=SamplingConfig)
    optimizer: OptimizerConfig = Field(default_factory=OptimizerConfig)
    evaluation: EvaluationConfig = Field(default_factory=EvaluationConfig)
    stop: StopConfig = Field(default_factory=StopConfig)


class SampledConfig(FlowConfig):
    """Algorithms that sample completions and score them."""

    groups_per_cycle: PositiveInt = Field(8, description="Prompts per cycle.")
    group_size: Annotated[int, Field(ge=2, le=1024)] = Field(8, description="Completions per prompt (G).")
    rewards: list[RewardConfig] = Field(default_factory=lambda: [RewardConfig()], min_length=1)


class RolloutConfig(SampledConfig):
    """Algorithms that make a batch of scored completions themselves."""

    aggregation: Aggregation = Field(
        "sum", description="How token losses add up to the step's loss; Whitney's own is the plain sum."
    )


class GroupConfig(RolloutConfig):
    """Algorithms whose advantage compares a completion with the others of its group."""

    whiten: bool = Field(False, description="Normalise advantages over the whole batch, after the group's baseline.")
    kl: KlConfig = Field(default_factory=KlConfig)


class NormalizedConfig(GroupConfig):
    """Group advantages that are divided by the group's standard deviation."""

    std: Literal["population", "sample"] = Field(
        "population",
        description="Whitney divides by the population's deviation; `sample` by (sample std + std_eps).",
    )
    std_eps: NonNegative = Field(1e-4, description='Added to the deviation when std = "sample".')

    @property
    def eps(self) -> float:
        """What is added to the deviation: only the sample convention has something."""
        return self.std_eps if self.std == "sample" else 0.0
