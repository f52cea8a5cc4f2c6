"""One configuration a flow. Defaults are Whitney's published behaviour; a paper's variant is an option with a name."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from algorithms import Aggregation
from algorithms.opsd import DEMONSTRATION_TEMPLATE
from algorithms.sdpo import FEEDBACK_TEMPLATE
from flows.config.base import FlowConfig, GroupConfig, NormalizedConfig, RolloutConfig, SampledConfig
from flows.config.sections import (
    EvaluationConfig,
    Fraction,
    NonNegative,
    PositiveInt,
    ResampleConfig,
    RewardConfig,
    TeacherConfig,
)
from tasks.ttt_prompts import IMPROVE_TEMPLATE
from whitney.types.operation import LossFunction

Bound = Annotated[float, Field(ge=0, le=1e6)]


class SftConfig(FlowConfig):
    """Supervised fine-tuning: cross_entropy on completions."""

    batch_size: PositiveInt = Field(32, description="Examples per optimizer step.")
    aggregation: Aggregation = Field("token_mean", description="How token losses add up to the step's loss.")


class GrpoConfig(NormalizedConfig):
    """Group relative policy optimization (arXiv 2402.03300)."""


class GrpoNostdConfig(GroupConfig):
    """GRPO whose advantage is only centred, never divided by the group's deviation."""


class GrpoLenNormConfig(NormalizedConfig):
    """GRPO whose advantage is divided by the completion's own length."""


class DrGrpoConfig(RolloutConfig):
    """Dr. GRPO: no deviation, an explicit length normalizer, no KL term (arXiv 2503.20783)."""

    normalizer: Literal["completion", "constant"] = Field(
        "completion",
        description="Whitney divides by the completion's own length; the paper by one constant, max_tokens.",
    )


class ReinforceConfig(GroupConfig):
    """REINFORCE with a baseline (Williams 1992)."""

    baseline: Literal["group", "moving"] = Field(
        "group", description="The group's mean reward, or a moving average of the earlier cycles' mean rewards."
    )
    baseline_decay: Annotated[float, Field(ge=0, lt=1)] = Field(0.9, description="Decay of the moving average.")


class PpoConfig(NormalizedConfig):
    """PPO's clipped objective without a critic (arXiv 1707.06347)."""

    clip_low: Bound = Field(0.8, description="Lower bound of the ratio: 0.8 is the bound 0.8, not 1 − 0.8.")
    clip_high: Bound = Field(1.2, description="Upper bound of the ratio.")


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


class CispoConfig(NormalizedConfig):
    """CISPO: the clipped ratio is a coefficient, no gradient is zeroed (arXiv 2506.13585)."""

    clip_low: Bound | None = Field(None, description="Lower bound; default: the provider's, 0. Not on tinker.")
    clip_high: Bound | None = Field(
        None, description="Upper bound; default: the provider's, 5 on modal and 4 elsewhere. Not on tinker."
    )


class GspoConfig(NormalizedConfig):
    """GSPO: PPO's objective with the sequence's ratio (arXiv 2507.18071)."""

    clip_low: Bound | None = Field(None, description="Lower bound; default: the server's 0.8. The paper: 1 − 3e-4.")
    clip_high: Bound | None = Field(None, description="Upper bound; default: the server's 1.2. The paper: 1 + 4e-4.")


class DppoConfig(NormalizedConfig):
    """DPPO: a divergence mask in place of the ratio's clipping."""

    delta_low: NonNegative = Field(0.2, description="Divergence allowed where the advantage is negative.")
    delta_high: NonNegative = Field(0.2, description="Divergence allowed where the advantage is positive.")


class DroConfig(GroupConfig):
    """DRO: likelihood times a soft advantage, with a quadratic penalty (arXiv 2405.19107)."""

    beta: NonNegative | None = Field(
        None, description="Weight of the penalty; default: the provider's (0.05 on local). Not on tinker."
    )


class DapoConfig(NormalizedConfig):
    """DAPO: decoupled clip bounds and dynamic sampling (arXiv 2503.14476)."""

    clip_low: Bound = Field(0.8, description="Lower bound of the ratio, 1 − ε_low.")
    clip_high: Bound = Field(1.28, description="Upper bound of the ratio, 1 + ε_high.")
    resample: ResampleConfig = Field(default_factory=ResampleConfig)


class SapoConfig(NormalizedConfig):
    """SAPO: a soft gate in place of clipping (arXiv 2511.20347); local provider only."""

    tau_pos: Annotated[float, Field(gt=0)] = Field(1.0, description="Temperature of the gate where A > 0.")
    tau_neg: Annotated[float, Field(gt=0)] = Field(1.05, description="Temperature of the gate where A ≤ 0.")


class RlooConfig(GroupConfig):
    """RLOO: each reward against the mean of the others (arXiv 2402.14740); [kl] adds the reference."""


class ReinforcePpConfig(RolloutConfig):
    """REINFORCE++: the group's advantage and a KL term against the initial weights (arXiv 2501.03262)."""

    kl: Literal["k2", "k1", "k2_gradient"] = Field(
        "k2",
        description="Whitney: −β·½d² per token; k1: the paper's −β·Σ d from the token on; k2_gradient: −β·d, the "
        "gradient of ½d². With d = lp − ref.",
    )
    kl_coef: NonNegative = Field(0.05, description="β.")
    loss_function: Literal["importance_sampling", "ppo"] = Field(
        "importance_sampling", description="Whitney's plain ratio, or PPO's clipped objective, as in the paper."
    )
    clip_low: Bound = Field(0.8, description='Lower bound of the ratio, for "ppo".')
    clip_high: Bound = Field(1.2, description='Upper bound of the ratio, for "ppo".')
    whiten: bool = Field(False, description="The paper's normalization over the whole batch.")


class MaxrlConfig(GroupConfig):
    """MaxRL: compare with the best of the others, or divide by the mean success (arXiv 2602.02710)."""

    estimator: Literal["beat_best", "mean_normalized"] = Field(
        "beat_best", description="Whitney: r − max(others); the paper: (r − mean) / mean."
    )


class DistillConfig(FlowConfig):
    """What distillation flows share: rollouts, and a frozen teacher that judges every token of them."""

    groups_per_cycle: PositiveInt = Field(8, description="Prompts per cycle.")
    group_size: Annotated[int, Field(ge=1, le=1024)] = Field(4, description="Completions per prompt.")
    aggregation: Aggregation = Field("sum", description="How token losses add up to the step's loss.")
    teacher_coef: Annotated[float, Field(gt=0)] = Field(1.0, description="Factor of teacher_lp − student_lp.")
    advantage_clip: Annotated[float, Field(gt=0)] | None = Field(
        None, description="Largest |advantage| of a token, so that one impossible token does not rule the batch."
    )
    center_advantages: bool = Field(
        False, description="Subtract the step's mean advantage: steadier where the teacher is very sure."
    )


class OpdConfig(DistillConfig):
    """On-policy distillation: the teacher's log-probs on what the student sampled (arXiv 2306.13649)."""

    teacher: TeacherConfig = Field(default_factory=TeacherConfig)


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


class SdpoConfig(DistillConfig):
    """Self-distillation from feedback on the student's own attempt (arXiv 2601.20802)."""

    rewards: list[RewardConfig] = Field(default_factory=lambda: [RewardConfig()], min_length=1)
    template: str = Field(
        FEEDBACK_TEMPLATE, description="The teacher's question; holds {question}, {attempt} and {feedback}."
    )
    feedback: str = Field(
        "verifier",
        description='"verifier" (what was read and whether it is right), "verifier:reveal" (and the answer), "sibling" '
        '(a successful attempt of the group), "field:NAME", "constant:TEXT", or your own "module:function".',
    )
    success_reward: float = Field(1.0, description="The reward from which on an attempt counts as right.")


class DpoConfig(FlowConfig):
    """Direct preference optimization on pairs (arXiv 2305.18290)."""

    batch_size: PositiveInt = Field(16, description="Pairs per optimizer step.")
    steps_per_batch: Literal[1] = Field(1, description="Always 1: the gradient weights hold for one step only.")
    beta: Annotated[float, Field(gt=0)] = Field(0.1, description="β: how strongly the reference holds.")
    label_smoothing: Annotated[float, Field(ge=0, lt=0.5)] = Field(
        0.0, description="Probability that a pair's labels are swapped (conservative DPO)."
    )


class TttConfig(RolloutConfig):
    """Test-time training: one problem, entropic advantages, a buffer of best solutions (arXiv 2601.16175)."""

    groups_per_cycle: PositiveInt = Field(2, description="Groups per cycle, each from a starting state of the buffer.")
    group_size: Annotated[int, Field(ge=2, le=1024)] = Field(32, description="Completions per group; 32 to 64.")
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

    @model_validator(mode="after")
    def _adaptive_beta_has_a_solution(self) -> Self:
        if self.beta is None and self.group_size < 3:
            raise ValueError(
                f"group_size = {self.group_size}: two completions have no adaptive β; take 3 or more, or set beta"
            )
        return self


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
