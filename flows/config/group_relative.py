"""Configurations of the group-relative algorithms. Defaults are Whitney's published behaviour; a paper's variant is an
option with a name."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from algorithms import NO_TERMS, Aggregation, LossTerms, ResamplePolicy, cispo, dapo, dppo, dro, gspo, ppo, sapo
from flows.config.base import GroupConfig, NormalizedConfig, RolloutConfig
from flows.config.options import ResampleConfig
from flows.config.sections import Bound, NonNegative


def length_divided_twice(aggregation: Aggregation) -> list[str]:
    """What to say where advantages are divided by a length already."""
    if aggregation == "sum":
        return []
    return [
        f"aggregation = {aggregation!r}: each advantage is divided by a length already, so this divides a second time; "
        '"sum" is the published form'
    ]


class GrpoConfig(NormalizedConfig):
    """Group relative policy optimization (arXiv 2402.03300)."""


class GrpoNostdConfig(GroupConfig):
    """GRPO whose advantage is only centred, never divided by the group's deviation."""


class GrpoLenNormConfig(NormalizedConfig):
    """GRPO whose advantage is divided by the completion's own length."""

    def warnings(self) -> list[str]:
        """A second division by length."""
        return length_divided_twice(self.aggregation)


class DrGrpoConfig(RolloutConfig):
    """Dr. GRPO: no deviation, an explicit length normalizer, no KL term (arXiv 2503.20783)."""

    normalizer: Literal["completion", "constant"] = Field(
        "completion",
        description="Whitney divides by the completion's own length; the paper by one constant, max_tokens.",
    )

    def warnings(self) -> list[str]:
        """A second division by length."""
        return length_divided_twice(self.aggregation)


class ReinforceConfig(GroupConfig):
    """REINFORCE with a baseline (Williams 1992)."""

    group_size: Annotated[int, Field(ge=1, le=1024)] = Field(
        8, description="Completions per prompt (G); 1 is enough for a moving baseline."
    )
    baseline: Literal["group", "moving"] = Field(
        "group", description="The group's mean reward, or a moving average of the earlier cycles' mean rewards."
    )
    baseline_decay: Annotated[float, Field(ge=0, lt=1)] = Field(0.9, description="Decay of the moving average.")

    def check(self) -> None:
        """One completion has no group to be compared with."""
        super().check()
        if self.baseline == "group" and self.group_size < 2:
            raise ValueError(
                f'group_size = {self.group_size}: the group\'s mean needs at least 2; or set baseline = "moving"'
            )


class PpoConfig(NormalizedConfig):
    """PPO's clipped objective without a critic (arXiv 1707.06347)."""

    clip_low: Bound = Field(0.8, description="Lower bound of the ratio: 0.8 is the bound 0.8, not 1 − 0.8.")
    clip_high: Bound = Field(1.2, description="Upper bound of the ratio.")

    def loss_terms(self) -> LossTerms:
        """The bounds of the ratio."""
        return ppo.loss_terms(self.model.provider, self.clip_low, self.clip_high)


class CispoConfig(NormalizedConfig):
    """CISPO: the clipped ratio is a coefficient, no gradient is zeroed (arXiv 2506.13585)."""

    clip_low: Bound | None = Field(None, description="Lower bound; default: the provider's, 0. Not on tinker.")
    clip_high: Bound | None = Field(
        None, description="Upper bound; default: the provider's, 5 on modal and 4 elsewhere. Not on tinker."
    )
    send_bounds: bool = Field(
        True, description="Send the bounds in loss_config; false for a back end of modal that refuses the keys."
    )

    def loss_terms(self) -> LossTerms:
        """The bounds of the coefficient."""
        if not self.send_bounds:
            self._refuse_without_effect(("clip_low", "clip_high"), "send_bounds is false")
            return NO_TERMS
        return cispo.loss_terms(self.model.provider, self.clip_low, self.clip_high)


class GspoConfig(NormalizedConfig):
    """GSPO: PPO's objective with the sequence's ratio (arXiv 2507.18071)."""

    clip_low: Bound | None = Field(None, description="Lower bound; default: the server's 0.8. The paper: 1 − 3e-4.")
    clip_high: Bound | None = Field(None, description="Upper bound; default: the server's 1.2. The paper: 1 + 4e-4.")

    def loss_terms(self) -> LossTerms:
        """The bounds of the ratio."""
        return gspo.loss_terms(self.model.provider, self.clip_low, self.clip_high)


class DppoConfig(NormalizedConfig):
    """DPPO: a divergence mask in place of the ratio's clipping."""

    delta_low: NonNegative = Field(0.2, description="Divergence allowed where the advantage is negative.")
    delta_high: NonNegative = Field(0.2, description="Divergence allowed where the advantage is positive.")

    def loss_terms(self) -> LossTerms:
        """The divergences allowed."""
        return dppo.loss_terms(self.model.provider, self.delta_low, self.delta_high)


class DroConfig(GroupConfig):
    """DRO: likelihood times a soft advantage, with a quadratic penalty (arXiv 2405.19107)."""

    beta: NonNegative | None = Field(
        None, description="Weight of the penalty; default: the provider's (0.05 on local). Not on tinker."
    )

    def loss_terms(self) -> LossTerms:
        """The weight of the penalty."""
        return dro.loss_terms(self.model.provider, self.beta)


class DapoConfig(NormalizedConfig):
    """DAPO: decoupled clip bounds and dynamic sampling (arXiv 2503.14476)."""

    clip_low: Bound = Field(0.8, description="Lower bound of the ratio, 1 − ε_low.")
    clip_high: Bound = Field(1.28, description="Upper bound of the ratio, 1 + ε_high.")
    resample: ResampleConfig = Field(default_factory=ResampleConfig)

    def loss_terms(self) -> LossTerms:
        """The bounds of the ratio."""
        return dapo.loss_terms(self.model.provider, self.clip_low, self.clip_high)

    def resample_policy(self) -> ResamplePolicy:
        """What a cycle may spend on groups that are too small, or have no signal."""
        section = self.resample
        return ResamplePolicy(
            target_group_size=section.target_group_size or self.group_size,
            max_rounds=section.max_rounds,
            max_operations=section.max_operations,
            zero_signal=section.zero_signal,
            drop_overlong=section.drop_overlong,
        )


class SapoConfig(NormalizedConfig):
    """SAPO: a soft gate in place of clipping (arXiv 2511.20347); local provider only."""

    tau_pos: Annotated[float, Field(gt=0)] = Field(1.0, description="Temperature of the gate where A > 0.")
    tau_neg: Annotated[float, Field(gt=0)] = Field(1.05, description="Temperature of the gate where A ≤ 0.")

    def loss_terms(self) -> LossTerms:
        """The temperatures of the gate."""
        return sapo.loss_terms(self.model.provider, self.tau_pos, self.tau_neg)


class RlooConfig(GroupConfig):
    """RLOO: each reward against the mean of the others (arXiv 2402.14740); [kl] adds the reference."""


class MaxrlConfig(GroupConfig):
    """MaxRL: compare with the best of the others, or divide by the mean success (arXiv 2602.02710)."""

    estimator: Literal["beat_best", "mean_normalized"] = Field(
        "beat_best", description="Whitney: r − max(others); the paper: (r − mean) / mean."
    )
