"""Configurations of what is neither group-relative nor in need of a second run of its own kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, ClassVar

from pydantic import Field

from algorithms import Aggregation, Algorithm, require_advertised_loss
from flows.config.base import FlowConfig, RolloutConfig, SampledConfig
from flows.config.options import TeacherConfig
from flows.config.sections import ConfigError, EvaluationConfig, NonNegative, PositiveInt, RewardConfig
from flows.config.user_function import load_build_loss, require_group
from tasks.examples import Example, require_answers
from tasks.ttt_prompts import IMPROVE_TEMPLATE, check_improve_template
from whitney.types.operation import LossFunction


class SftConfig(FlowConfig):
    """Supervised fine-tuning: cross_entropy on completions."""

    batch_size: PositiveInt = Field(32, description="Examples per optimizer step.")
    aggregation: Aggregation = Field("token_mean", description="How token losses add up to the step's loss.")

    def check_data(self, train: Sequence[Example]) -> None:
        """Every example has an answer to imitate."""
        require_answers(train, "training examples", "which SFT imitates")

    def needs(self, row: Algorithm) -> Algorithm:
        """The held-out loss is measured by `forward`."""
        row = super().needs(row)
        return row.with_operations("forward") if self.evaluation.enabled else row


class TttConfig(RolloutConfig):
    """Test-time training: one problem, entropic advantages, a buffer of best solutions (arXiv 2601.16175)."""

    groups_per_cycle: PositiveInt = Field(2, description="Groups per cycle, each from a starting state of the buffer.")
    group_size: Annotated[int, Field(ge=2, le=1024)] = Field(32, description="Completions per group; 32 to 64.")
    rewards: list[RewardConfig] = Field(..., min_length=1, description="The verifier, best with graded scores.")
    problem: Annotated[int, Field(ge=0, le=1_000_000)] = Field(0, description="Which example of the data is solved.")
    beta: Annotated[float, Field(gt=0)] | None = Field(
        None, description="β of the entropic objective; default: the smallest with KL(softmax(βr) ‖ uniform) = ln 2."
    )
    puct_c: NonNegative = Field(1.0, description="Weight of exploration when a starting state is chosen.")
    buffer_size: PositiveInt = Field(1000, description="Solutions that are kept.")
    reuse: bool = Field(True, description="Start from earlier solutions; false: always from the bare problem.")
    template: str = Field(
        IMPROVE_TEMPLATE, description="How an earlier solution is put to the model; {question}, {attempt}, {reward}."
    )
    evaluation: EvaluationConfig = Field(
        default_factory=lambda: EvaluationConfig(enabled=False),
        description="Off: what counts is the best solution of the one problem.",
    )

    heldout_by_default: ClassVar[float] = 0.0

    def check(self) -> None:
        """The template's placeholders, and an adaptive β that exists."""
        super().check()
        check_improve_template(self.template)
        if self.beta is None and self.group_size < 3:
            raise ValueError(
                f"group_size = {self.group_size}: two completions have no adaptive β; take 3 or more, or set beta"
            )

    def problem_of(self, train: Sequence[Example]) -> Example:
        """The one example that is solved.

        Raises:
            ConfigError: the data has no such example.
        """
        if self.problem >= len(train):
            raise ConfigError(f"problem = {self.problem}: the data has {len(train)} examples, counted from 0")
        return train[self.problem]


class CustomConfig(SampledConfig):
    """Your own `build_loss`: the cookbook's contract, one call a group."""

    group_size: Annotated[int, Field(ge=1, le=1024)] = Field(8, description="Completions per prompt.")
    rewards: list[RewardConfig] = Field(
        default_factory=lambda: [RewardConfig()],
        description="Each sequence carries its `reward`; an empty list rewards nothing.",
    )
    build_loss: str = Field(
        ..., description='"module:function", called as build_loss(sample, cycle, request, ctx); sync or async.'
    )
    loss_function: LossFunction = Field(
        "importance_sampling",
        description="The loss that build_loss asks for: checked against the provider before anything is allocated.",
    )
    teacher: TeacherConfig | None = Field(
        None, description="A frozen second run; ctx then carries teacher_run_id and teacher_sampler_id."
    )

    def check(self) -> None:
        """The loss is one the provider has; the function is there, and has groups that are large enough for it."""
        super().check()
        require_advertised_loss(self.model.provider, self.loss_function)
        require_group(load_build_loss(self.build_loss), self.group_size)

    def needs(self, row: Algorithm) -> Algorithm:
        """Gradient weights, which cross_entropy is mostly asked for with, are right under a plain sum only."""
        return replace(super().needs(row), needs_sum_reduction=self.loss_function == "cross_entropy")

    def warnings(self) -> list[str]:
        """Gradients hold for the weights they were computed at."""
        if self.steps_per_batch == 1 or self.loss_function != "cross_entropy":
            return []
        return [
            f"steps_per_batch = {self.steps_per_batch}: build_loss is called once a cycle; gradient weights would be "
            "stale from the second step on"
        ]
