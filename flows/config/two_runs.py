"""Configurations of the algorithms with a second run: a critic, a reference, a teacher."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from algorithms import NO_TERMS, Aggregation, LossTerms, clip_range, ppo_critic
from algorithms.opsd import DEMONSTRATION_TEMPLATE
from algorithms.sdpo import FEEDBACK_TEMPLATE
from algorithms.soft_targets import require_soft_targets
from flows.config.base import FlowConfig, RolloutConfig
from flows.config.options import TeacherConfig
from flows.config.sections import Bound, Fraction, NonNegative, PositiveInt, RewardConfig
from tasks import preferences
from tasks.data import DataSet, DataSource
from tasks.examples import Example
from tasks.feedback import FeedbackSource, check_feedback, resolve
from tasks.rewards import RewardTerm
from tasks.teacher_prompts import check_demonstration_template, check_demonstrations, check_feedback_template


class PpoCriticConfig(RolloutConfig):
    """PPO with a critic: values, GAE, returns (arXiv 1707.06347, 1506.02438)."""

    group_size: Annotated[int, Field(ge=1, le=1024)] = Field(4, description="Completions per prompt; 1 is enough.")
    clip_low: Bound = Field(0.8, description="Lower bound of the ratio.")
    clip_high: Bound = Field(1.2, description="Upper bound of the ratio.")
    gamma: Fraction = Field(1.0, description="Discount γ per token.")
    gae_lambda: Fraction = Field(0.95, description="λ of generalized advantage estimation.")
    value_clip: Annotated[float, Field(gt=0)] = Field(0.2, description="How far a value may move from the old one.")
    normalize_advantages: bool = Field(True, description="Whiten advantages over the batch's tokens.")
    critic_learning_rate: Annotated[float, Field(gt=0, le=1)] = Field(1e-3, description="The critic's peak rate.")

    def loss_terms(self) -> LossTerms:
        """The bounds of the ratio."""
        return ppo_critic.loss_terms(self.model.provider, self.clip_low, self.clip_high)


class ReinforcePpConfig(RolloutConfig):
    """REINFORCE++: the group's advantage and a KL term against the initial weights (arXiv 2501.03262)."""

    kl: Literal["k2", "k1", "k2_gradient"] = Field(
        "k2",
        description="Whitney: −β·½d² per token; k1: the paper's −β·Σ d from the token on; k2_gradient: −β·d, the "
        "gradient of ½d². With d = lp − ref. k2 is the gradient of no KL: a token that is already rarer than in the "
        "reference is pushed further down; k1 and k2_gradient are the sound choices.",
    )
    kl_coef: NonNegative = Field(0.05, description="β.")
    loss_function: Literal["importance_sampling", "ppo"] = Field(
        "importance_sampling", description="Whitney's plain ratio, or PPO's clipped objective, as in the paper."
    )
    clip_low: Bound = Field(0.8, description='Lower bound of the ratio, for "ppo".')
    clip_high: Bound = Field(1.2, description='Upper bound of the ratio, for "ppo".')
    whiten: bool = Field(False, description="The paper's normalization over the whole batch.")

    def loss_terms(self) -> LossTerms:
        """The bounds of the ratio, for PPO's objective."""
        if self.loss_function == "ppo":
            return clip_range(self.model.provider, self.clip_low, self.clip_high)
        self._refuse_without_effect(("clip_low", "clip_high"), 'loss_function is not "ppo"')
        return NO_TERMS


class DistillConfig(FlowConfig):
    """What distillation flows share: rollouts, and a frozen teacher that judges every token of them."""

    groups_per_cycle: PositiveInt = Field(8, description="Prompts per cycle.")
    group_size: Annotated[int, Field(ge=1, le=1024)] = Field(4, description="Completions per prompt.")
    aggregation: Aggregation = Field("sum", description="How token losses add up to the step's loss.")
    teacher_coef: Annotated[float, Field(gt=0, le=1e6)] = Field(1.0, description="Factor of teacher_lp − student_lp.")
    advantage_clip: Annotated[float, Field(gt=0)] | None = Field(
        None, description="Largest |advantage| of a token, so that one impossible token does not rule the batch."
    )
    center_advantages: bool = Field(
        False, description="Subtract the step's mean advantage: steadier where the teacher is very sure."
    )
    discount: Fraction = Field(0.0, description="γ: how far a token answers for what it led to; 0 judges it alone.")


class OpdConfig(DistillConfig):
    """On-policy distillation: the teacher's log-probs on what the student sampled (arXiv 2306.13649)."""

    teacher: TeacherConfig = Field(default_factory=TeacherConfig)

    def check(self) -> None:
        """A teacher that is what the student is has nothing to teach."""
        super().check()
        own, teacher = self.model, self.teacher
        if (teacher.name or own.name, teacher.state_id, teacher.artifact_id) == (
            own.name,
            own.initial_state_id,
            own.initial_artifact_id,
        ):
            raise ValueError(
                "teacher: the student already is what the teacher is, so there is nothing to learn; set teacher.name "
                "to another model, or teacher.artifact_id or teacher.state_id to trained weights"
            )


class OpsdConfig(DistillConfig):
    """On-policy self-distillation: the teacher sees the golden answer first (SDFT, arXiv 2601.19897)."""

    template: str = Field(DEMONSTRATION_TEMPLATE, description="The teacher's question; holds {question} and {answer}.")
    demonstration_field: str = Field("answer", description="Field of the data that is put in for {answer}.")
    topk: Annotated[int, Field(ge=0, le=100)] = Field(
        0, description="0: the sampled token's log-probs; K: soft targets of the teacher's K likeliest (the paper: 20)."
    )
    skip_first_tokens: Annotated[int, Field(ge=0, le=1000)] = Field(
        0, description="Train nothing on a completion's first tokens (the paper: 3)."
    )

    def check(self) -> None:
        """The template's placeholders, and what soft targets take the place of."""
        super().check()
        check_demonstration_template(self.template)
        if self.topk:
            require_soft_targets(self.model.provider)
            signal = ("teacher_coef", "advantage_clip", "center_advantages", "discount")
            self._refuse_without_effect(signal, "topk sends soft targets, which have no advantage")

    def check_data(self, train: Sequence[Example]) -> None:
        """Every example has a demonstration."""
        check_demonstrations(train, self.demonstration_field)


class SdpoConfig(DistillConfig):
    """Self-distillation from feedback on the student's own attempt (arXiv 2601.20802)."""

    rewards: list[RewardConfig] = Field(default_factory=lambda: [RewardConfig()], min_length=1)
    template: str = Field(
        FEEDBACK_TEMPLATE, description="The teacher's question; holds {question}, {attempt} and {feedback}."
    )
    feedback: str = Field(
        ...,
        description='"verifier" (what was read and whether it is right), "verifier:reveal" (and the answer), "sibling" '
        '(a successful attempt of the group), "field:NAME", "constant:TEXT", or your own "module:function".',
    )
    success_reward: float = Field(1.0, description="The reward from which on an attempt counts as right.")

    def reward_terms(self) -> list[RewardTerm]:
        """What a verifier says of an attempt; it is no reward here."""
        return [section.term() for section in self.rewards]

    def feedback_source(self) -> FeedbackSource:
        """Where feedback comes from; a verifier describes what the first reward function read.

        Raises:
            ValueError: `feedback` names no source.
        """
        return resolve(self.feedback, success=self.success_reward, reward=self.rewards[0].term())

    def check(self) -> None:
        """The template's placeholders, and a source that exists."""
        super().check()
        check_feedback_template(self.template)
        self.feedback_source()

    def check_data(self, train: Sequence[Example]) -> None:
        """The source has something to say about the data."""
        check_feedback(self.feedback_source(), train)


class DpoConfig(FlowConfig):
    """Direct preference optimization on pairs (arXiv 2305.18290)."""

    batch_size: PositiveInt = Field(16, description="Pairs per optimizer step.")
    steps_per_batch: Literal[1] = Field(1, description="Always 1: the gradient weights hold for one step only.")
    beta: Annotated[float, Field(gt=0)] = Field(0.1, description="β: how strongly the reference holds.")
    label_smoothing: Annotated[float, Field(ge=0, lt=0.5)] = Field(
        0.0, description="Probability that a pair's labels are swapped (conservative DPO)."
    )

    def evaluation_terms(self) -> list[RewardTerm]:
        """Pairs have no answer: replies are measured only where `evaluation.reward` says how."""
        return super().evaluation_terms() if self.evaluation.reward else []

    def read_data(self, source: DataSource) -> DataSet:
        """Examples with a chosen and a rejected reply."""
        return preferences.load(source)
