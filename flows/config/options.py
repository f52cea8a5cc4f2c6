"""The tables of options: approval, and what some algorithms have: a KL term, a teacher, resampling."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from algorithms import KlEstimator
from flows.config.sections import Id, NonNegative, PositiveInt, ProviderName, Section, at_most_one_start


class ApprovalConfig(Section):
    """When a person is asked before anything is billed. Off by default."""

    above_operations: Annotated[int, Field(ge=0)] | None = Field(
        None,
        description="A run that plans more Whitney operations than this waits for a person's word before a session "
        "opens, with the plan in the form; default: nobody is asked. 0 asks always.",
    )
    timeout_hours: Annotated[float, Field(gt=0, le=8760)] = Field(
        24.0, description="Hours to wait for an answer; then the run fails, with nothing allocated."
    )

    @property
    def timeout_s(self) -> float:
        """The same in seconds."""
        return self.timeout_hours * 3600


class KlConfig(Section):
    """A penalty on leaving the initial weights. Off by default; on, a second run answers for the reference."""

    coef: NonNegative = Field(0.0, description="β; 0 = no reference run, no penalty.")
    estimator: KlEstimator = Field(
        "k1",
        description="With d = lp − ref: k1 = d, k2 = ½d², k3 = e^−d − 1 + d, in nats per token. k2 and k3 are never "
        'negative: with place = "advantage" they push a token that is already rarer than in the reference further '
        "down, so take k1 there.",
    )
    place: Literal["advantage", "reward"] = Field(
        "advantage",
        description='"advantage": A_t − β·kl_t, token by token; "reward": r − β·Σ kl_t, before the baseline is taken.',
    )


class TeacherConfig(Section):
    """The frozen run that answers log-probs. Never trained, never sampled, one snapshot for the whole attempt."""

    name: str | None = Field(None, description="Model name as the capabilities list it; default: the trained model.")
    provider: ProviderName | None = Field(None, description="Default: the trained run's.")
    state_id: Id | None = Field(None, description="Saved state that holds the teacher's weights; default: the base.")
    artifact_id: Id | None = Field(None, description="Exported adapter that is the teacher; default: the base model.")
    rank: Annotated[int, Field(ge=1, le=1024)] | None = Field(
        None, description="LoRA rank of that state or adapter; default: lora.rank."
    )
    alpha: Annotated[float, Field(gt=0, le=10_000)] | None = Field(
        None, description="LoRA alpha of that state or adapter; default: lora.alpha."
    )
    session: Literal["shared", "own"] = Field(
        "shared", description='"shared": a second run on the student\'s session; "own": a session of its own.'
    )

    @model_validator(mode="after")
    def _one_start(self) -> Self:
        return at_most_one_start(self, "state_id", "artifact_id")


class ResampleConfig(Section):
    """DAPO's dynamic sampling: what is dropped, and how often to draw again for what is missing."""

    drop_overlong: bool = Field(True, description="Drop completions that max_tokens cut off (stop_reason length).")
    target_group_size: Annotated[int, Field(ge=2, le=1024)] | None = Field(
        None, description="Completions a group must retain to be complete; default: group_size."
    )
    zero_signal: Literal["same_prompt", "next_prompt"] = Field(
        "next_prompt",
        description="A group whose retained rewards are all equal is drawn again for the same prompt, or replaced by "
        "the next prompt of the data.",
    )
    max_rounds: Annotated[int, Field(ge=0, le=1000)] = Field(3, description="Rounds of drawing again, per cycle.")
    max_operations: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        32, description="Extra `sample` operations per cycle; each is billed."
    )
    on_exhausted: Literal["skip", "train_partial", "fail"] = Field(
        "skip",
        description="Rounds or operations used up with groups still missing: record the cycle as skipped, train on the "
        "complete groups, or fail the run.",
    )
    soft_overlong_cache: PositiveInt | None = Field(
        None,
        description="Soft overlong punishment: rewards fall to −1 over the last so many tokens before max_tokens "
        "(arXiv 2503.14476, eq. 13); default: none. Needs drop_overlong = false to reach cut-off completions.",
    )
