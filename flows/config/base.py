"""What algorithms of one kind have in common: all of them, those that sample, those that reward."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from algorithms import NO_TERMS, Aggregation, Algorithm, KlPenalty, LossTerms
from flows.config.budget import BudgetConfig
from flows.config.options import ApprovalConfig, KlConfig
from flows.config.sections import (
    CredentialsBlock,
    DataConfig,
    EvaluationConfig,
    Id,
    LoraSection,
    ModelConfig,
    NonNegative,
    OptimizerConfig,
    PositiveInt,
    RewardConfig,
    RunName,
    SamplingConfig,
    Section,
)
from flows.config.stop import StopConfig
from tasks import data as data_sets
from tasks.data import DataSet, DataSource
from tasks.examples import Example
from tasks.rewards import RewardTerm


class FlowConfig(Section):
    """What every algorithm has in common."""

    name: RunName = None
    output_dir: Path = Field(Path("runs"), description="Folder that run folders are made in.")
    seed: Annotated[int, Field(ge=0, lt=2**31)] = Field(0, description="Seeds data order, sampling and LoRA.")
    cycles: PositiveInt = Field(16, description="Cycles: one batch each, and `steps_per_batch` optimizer steps.")
    save_every: PositiveInt = Field(
        1, description="Cycles per block. A block ends in save_state; a Retry repeats at most one block."
    )
    keep_states: Annotated[int, Field(ge=2)] | None = Field(
        3, description="Saved states kept: those of the last so many blocks, older ones are deleted; none keeps all."
    )
    steps_per_batch: Annotated[int, Field(ge=1, le=64)] = Field(
        1, description="Optimizer steps on a cycle's batch, each over the whole batch (K, μ in the GRPO paper)."
    )
    reward_timeout_s: Annotated[float, Field(gt=0)] = Field(
        30.0, description="Hard limit for scoring one completion with a function of yours, in seconds."
    )
    credentials_block: CredentialsBlock = None
    session_limit: Id | None = Field(
        None,
        description="Prefect global concurrency limit that counts open sessions: the run waits for its slots (1, or 2 "
        "with a teacher's own session) before it opens one; default: no limit.",
    )
    skip_unchanged: bool = Field(
        False,
        description="Skip a deployment's run whose data, configuration and template are those of its last completed "
        "one: nothing is trained or billed.",
    )
    approval: ApprovalConfig = Field(default_factory=ApprovalConfig)
    budget: BudgetConfig = Field(default_factory=BudgetConfig)
    model: ModelConfig = Field(default_factory=ModelConfig)
    lora: LoraSection = Field(default_factory=LoraSection)
    data: DataConfig = Field(default_factory=DataConfig)
    sampling: SamplingConfig = Field(default_factory=SamplingConfig)
    optimizer: OptimizerConfig = Field(default_factory=OptimizerConfig)
    evaluation: EvaluationConfig = Field(default_factory=EvaluationConfig)
    stop: StopConfig = Field(default_factory=StopConfig)

    # What share of the data is held out where nothing else is said.
    heldout_by_default: ClassVar[float] = 0.1

    def loss_terms(self) -> LossTerms:
        """What tunes the loss, as the provider takes it.

        Raises:
            ValueError: a value out of its range, or one the provider has no way to take.
        """
        return NO_TERMS

    def reward_terms(self) -> list[RewardTerm]:
        """What completions are rewarded for; nothing for an algorithm without rewards."""
        return []

    def evaluation_terms(self) -> list[RewardTerm]:
        """What a correct reply is: as configured; else what is rewarded first; else the answer word for word."""
        if named := self.evaluation.reward:
            return [RewardTerm(named)]
        first = next(iter(self.reward_terms()), RewardTerm("exact"))
        return [RewardTerm(first.function, arguments=first.arguments)]

    def check(self) -> None:
        """Refuse what can be refused without data or endpoint; every algorithm adds its own.

        Raises:
            ValueError: names the field, the value and the way out.
        """
        self.loss_terms()
        self.evaluation.require_between_blocks(self.save_every)
        self.stop.check_gain(self.reward_terms(), self.cycles, self.budget.prices)

    def check_data(self, train: Sequence[Example]) -> None:
        """Refuse examples that lack what the algorithm learns from.

        Raises:
            ValueError: names what is missing, and in how many examples.
        """

    def read_data(self, source: DataSource) -> DataSet:
        """The examples, as the algorithm needs them."""
        return data_sets.load(source)

    def needs(self, row: Algorithm) -> Algorithm:
        """The registry's row with what this configuration asks for beside: to measure, say."""
        measured = self.evaluation.enabled and bool(self.evaluation_terms())
        return row.with_operations("save_weights_for_sampler", "sample") if measured else row

    def warnings(self) -> list[str]:
        """Settings that are allowed and probably not meant."""
        return []

    def _refuse_without_effect(self, names: Iterable[str], because: str) -> None:
        """A setting that is without effect is a misunderstanding: better told than passed over.

        One at its default may stand: `whitney init` writes them all.
        """
        fields = type(self).model_fields
        given = [name for name in names if getattr(self, name) != fields[name].get_default(call_default_factory=True)]
        if given:
            raise ValueError(f"{', '.join(given)}: no effect, {because}; leave out")


class SampledConfig(FlowConfig):
    """Algorithms that sample completions and score them."""

    groups_per_cycle: PositiveInt = Field(8, description="Prompts per cycle.")
    group_size: Annotated[int, Field(ge=2, le=1024)] = Field(8, description="Completions per prompt (G).")
    rewards: list[RewardConfig] = Field(default_factory=lambda: [RewardConfig()], min_length=1)

    def reward_terms(self) -> list[RewardTerm]:
        """The weighted sum of `rewards`."""
        return [section.term() for section in self.rewards]


class RolloutConfig(SampledConfig):
    """Algorithms that make a batch of scored completions themselves."""

    aggregation: Aggregation = Field(
        "sum", description="How token losses add up to the step's loss; Whitney's own is the plain sum."
    )


class GroupConfig(RolloutConfig):
    """Algorithms whose advantage compares a completion with the others of its group."""

    whiten: bool = Field(False, description="Normalise advantages over the whole batch, after the group's baseline.")
    kl: KlConfig = Field(default_factory=KlConfig)

    def kl_penalty(self) -> KlPenalty | None:
        """The penalty on leaving the initial weights; None where it is off."""
        return KlPenalty(self.kl.coef, self.kl.estimator, self.kl.place) if self.kl.coef else None

    def needs(self, row: Algorithm) -> Algorithm:
        """With a KL term: a reference run."""
        row = super().needs(row)
        return row.with_run("reference") if self.kl.coef else row


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
