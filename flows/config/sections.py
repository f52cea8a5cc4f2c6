"""The tables of a configuration, shared by all algorithms.

Every model forbids unknown fields: a misspelt setting that is silently ignored is a training run wasted.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from algorithms import Schedule
from tasks.rewards import RewardTerm

# Upper bounds are far beyond any use: they turn a slip of the keyboard into a message, before it is an overflow.
PositiveInt = Annotated[int, Field(ge=1, le=1_000_000)]
Fraction = Annotated[float, Field(ge=0, le=1)]
NonNegative = Annotated[float, Field(ge=0, le=1e12)]
Bound = Annotated[float, Field(ge=0, le=1e6)]
ProviderName = Literal["local", "modal", "tinker"]
Id = Annotated[str, Field(min_length=1)]
NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}"
"""What things are called that become folders, files and deployments."""
Name = Annotated[str, Field(pattern=f"^{NAME}$")]

# What a run of one algorithm and a pipeline both have.
RunName = Annotated[Name | None, Field(description="Name of the run and its folder; default: the flow run's name.")]
CredentialsBlock = Annotated[
    str | None,
    Field(description="Prefect block of type Whitney Credentials; default: WHITNEY_BASE_URL and WHITNEY_API_KEY."),
]


class ConfigError(ValueError):
    """The configuration cannot be used. The message lists every mistake, one a line; nothing has been allocated."""


def _greedy_or_measurable(temperature: float) -> float:
    if 0 < temperature < 0.01:
        raise ValueError("temperature is 0 (greedy) or at least 0.01: logits divided by less overflow")
    return temperature


Temperature = Annotated[float, Field(ge=0, le=100), AfterValidator(_greedy_or_measurable)]


class Section(BaseModel):
    """One table of a configuration."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        # Prefect's form puts it over the table's fields
        model_title_generator=lambda model: model.__name__.removesuffix("Config").removesuffix("Section"),
    )


AnySection = TypeVar("AnySection", bound=Section)


def at_most_one_start(section: AnySection, *names: str) -> AnySection:
    """The section, if at most one of the fields says where weights come from.

    Raises:
        ValueError: names those that are set.
    """
    given = [name for name in names if getattr(section, name) is not None]
    if len(given) > 1:
        raise ValueError(f"{' and '.join(given)} are both set: weights come from one place; leave one out")
    return section


class ModelConfig(Section):
    """Which model is trained, where, and how text becomes tokens."""

    name: str = Field("smollm2-135m-instruct", description="Model name as the gateway's capabilities list it.")
    provider: ProviderName = Field("local", description="Whitney provider that executes the operations.")
    tokenizer: str | None = Field(
        None,
        description="Model name or Hugging Face folder whose tokenizer and chat template are used; default: the model.",
    )
    chat_template: str | None = Field(
        None,
        description='"chatml" (no system prompt), or the path of a Jinja file; default: the model\'s own template.',
    )
    initial_state_id: Id | None = Field(None, description="Saved state to start from; default: the base model.")
    initial_optimizer: bool = Field(
        False, description="With initial_state_id: restore its optimizer too; by default it begins afresh."
    )
    initial_artifact_id: Id | None = Field(
        None, description="Exported adapter to start from, an earlier run's for one; default: the base model."
    )

    @model_validator(mode="after")
    def _one_start(self) -> Self:
        if self.initial_optimizer and self.initial_state_id is None:
            raise ValueError("initial_optimizer = true: only a saved state has an optimizer; set initial_state_id")
        return at_most_one_start(self, "initial_state_id", "initial_artifact_id")


class LoraSection(Section):
    """The adapter that is trained (arXiv 2106.09685)."""

    rank: Annotated[int, Field(ge=1, le=1024)] = Field(16, description="LoRA rank r.")
    alpha: Annotated[float, Field(gt=0, le=10_000)] = Field(32.0, description="Scale of the update: alpha / rank.")


class DataConfig(Section):
    """Where examples come from and which of them are held out."""

    source: str = Field(
        "addition-1digit",
        description="A shipped set (addition-1digit, addition-2digit, capitals; for DPO "
        "addition-1digit-preferences), the path of a JSONL file with "
        '`prompt` or `messages` and `answer`, or "reasoning-gym:TASK".',
    )
    heldout: str | None = Field(None, description="JSONL file of held-out examples; default: split the source.")
    heldout_fraction: Fraction | None = Field(
        None, description="Share that is held out, 0.1 by default; not for shipped sets, which have their own split."
    )
    limit: PositiveInt | None = Field(None, description="Use only the first so many training examples.")
    reasoning_gym: dict[str, int | float | str | bool] = Field(
        default_factory=dict, description="Arguments of the reasoning-gym task; `size` and `seed` among them."
    )


class SamplingConfig(Section):
    """How rollouts are drawn."""

    max_tokens: PositiveInt = Field(64, description="Longest completion, in tokens; capped by the context left.")
    temperature: Temperature = Field(1.0, description="RL needs 1: log-probs are the model's own at temperature 1.")
    top_p: Annotated[float, Field(gt=0, le=1)] = Field(1.0, description="Nucleus; RL needs 1.")
    top_k: Annotated[int, Field(ge=0, le=1_000_000)] | None = Field(
        None, description="Keep the k likeliest tokens; RL needs none."
    )
    ignore_eos: bool = Field(
        False, description="Completions run on to max_tokens, whatever they say: for measuring costs, not for learning."
    )


class RewardConfig(Section):
    """One reward function; several are summed by weight."""

    function: str = Field(
        "number",
        description="exact, number, contains, regex, length, soft_overlong, math_verify (extra `math`), "
        'reasoning_gym (extra `reasoning`), or your own "module:function".',
    )
    weight: Annotated[float, Field(ge=-1e6, le=1e6)] = Field(1.0, description="Factor in the weighted sum.")
    finish_bonus: Fraction = Field(
        0.0,
        description="Share of a correct reply's reward that is paid only if the reply also ended by itself: "
        "correct × ((1 − b) + b × finished). Never pays for stopping without being right, which collapses.",
    )
    arguments: dict[str, int | float | str | bool] = Field(
        default_factory=dict, description="Arguments of the function, e.g. `pattern` for regex."
    )

    def term(self) -> RewardTerm:
        """The same, as `tasks.rewards` takes it."""
        return RewardTerm(self.function, self.weight, self.finish_bonus, self.arguments)


class OptimizerConfig(Section):
    """AdamW (arXiv 1711.05101) and the learning rate's course over the cycles."""

    learning_rate: Annotated[float, Field(gt=0, le=1)] = Field(5e-4, description="Peak learning rate.")
    schedule: Schedule = Field("linear", description="Course after the warm-up; a constant rate wobbles at the end.")
    warmup_cycles: Annotated[int, Field(ge=0, le=1_000_000)] = Field(0, description="Cycles of linear warm-up.")
    final_fraction: Fraction = Field(0.1, description="Share of the peak that is left at the last cycle.")
    beta1: Annotated[float, Field(ge=0, lt=1)] = Field(0.9, description="Decay of the gradient's running mean.")
    beta2: Annotated[float, Field(ge=0, lt=1)] = Field(0.95, description="Decay of the squared gradient's mean.")
    eps: Annotated[float, Field(gt=0)] = Field(1e-8, description="Added to the root of the squared gradient's mean.")
    weight_decay: Annotated[float, Field(ge=0, le=100)] = Field(
        0.0, description="Share of learning_rate × weight that a step takes away."
    )
    grad_clip_norm: NonNegative = Field(1.0, description="Gradient norm above which it is scaled down; 0 = never.")


class EvaluationConfig(Section):
    """The held-out measurement before, after and, with `every`, during training."""

    enabled: bool = Field(True, description="Measure before the first and after the last cycle.")
    every: PositiveInt | None = Field(
        None,
        description="Measure after every so many cycles, too: a multiple of `save_every`, for it is between blocks.",
    )
    samples: PositiveInt = Field(4, description="Completions per held-out prompt at `temperature`.")
    pass_at: list[PositiveInt] = Field(
        default_factory=list,
        max_length=8,
        description="Which pass@k to estimate from them, [1, 4] for one: the chance that one of k tries is correct.",
    )
    temperature: Temperature = Field(1.0, description="0 = greedy (then one sample per prompt is enough).")
    greedy: bool = Field(False, description="Also measure one greedy completion per prompt.")
    max_prompts: PositiveInt | None = Field(None, description="Measure on the first so many held-out prompts only.")
    reward: str | None = Field(
        None,
        description="The reward function that says what is correct (score 1); default: the first of `rewards`, for SFT "
        "the answer word for word.",
    )

    @model_validator(mode="after")
    def _enough_samples(self) -> Self:
        if self.pass_at and self.temperature == 0:
            raise ValueError(
                f"pass_at = {self.pass_at} with temperature = 0: all tries at a prompt would be the same; leave it out "
                "or raise the temperature (`greedy` measures without it, too)"
            )
        if wanting := [k for k in self.pass_at if k > self.samples]:
            raise ValueError(
                f"pass_at = {self.pass_at}: pass@{wanting[0]} cannot be told from samples = {self.samples} completions "
                f"of a prompt; set samples = {max(wanting)} or more, or leave {wanting[0]} out"
            )
        return self

    def require_between_blocks(self, save_every: int) -> None:
        """Make sure that measurements fall between blocks: a Retry could not adopt one in the middle of one.

        Raises:
            ValueError: names both settings, and what would do.
        """
        if self.every is None or self.every % save_every == 0:
            return
        above = -(-self.every // save_every) * save_every
        raise ValueError(
            f"evaluation.every = {self.every} is no multiple of save_every = {save_every}, and what is measured is a "
            f"saved state: set evaluation.every = {above}, or save_every = {self.every}"
        )

    def is_due(self, trained: int, cycles: int) -> bool:
        """Whether to measure after `trained` of `cycles` cycles; what comes after the last is measured anyway."""
        return self.every is not None and trained < cycles and trained % self.every == 0
