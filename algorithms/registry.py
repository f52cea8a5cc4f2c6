"""Algorithms as data: what each is, what it needs before it may allocate anything, and what it costs a cycle.

In `operations_per_cycle` P is prompts (or pairs, or examples) per cycle, G completions per prompt, K optimizer steps on
a cycle's batch. Not counted: save_state at a block's end, a frozen run's one snapshot, evaluation, and the export.
What cannot be sent is not: a prompt that fills the context, the steps of a cycle in which nothing is to be trained.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Self

from algorithms.losses import PROVIDER_LOSS_SUPPORT, WHY_MISSING, require_advertised_loss, require_provider
from algorithms.names import did_you_mean
from algorithms.soft_targets import SOFT_TARGET_PROVIDERS

_TRAIN = ("forward_backward", "optim_step", "save_state", "export_lora")
_ROLLOUT = ("save_weights_for_sampler", "sample")
_SAMPLED = (*_TRAIN, *_ROLLOUT)

_STEP = "K × (forward_backward + optim_step)"
_GROUPS = f"save_weights_for_sampler + P sample + {_STEP}"
_SCORED_BY = "save_weights_for_sampler + P sample + P·G logprobs ({}) + " + _STEP


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One row.

    Args:
        name: as flows, files and the command line call it.
        title: for people.
        contract: what makes it this algorithm and no other, in one sentence.
        rollouts: whether completions are sampled.
        operations: kinds that the capability row must advertise, for the extra runs too.
        losses: every one of them must be in the provider's row of the loss table.
        optional_losses: asked for by an option only, on `optional_providers`.
        extra_runs: runs beside the policy's: "reference", "teacher", "critic".
        paper: where it comes from.
        operations_per_cycle: the ledger's count of a cycle, as a formula.
        needs_sum_reduction: whether the provider's cross_entropy must be a plain sum (gradient weights).
        also_refuses: what else is refused before a session exists, beside operations and losses.
        profile: its row of the cost table, None where it has none of its own.
    """

    name: str
    title: str
    contract: str
    rollouts: bool
    operations: tuple[str, ...]
    losses: tuple[str, ...]
    paper: str
    operations_per_cycle: str
    optional_losses: tuple[str, ...] = ()
    optional_providers: frozenset[str] = frozenset(PROVIDER_LOSS_SUPPORT)
    extra_runs: tuple[str, ...] = ()
    needs_sum_reduction: bool = False
    also_refuses: tuple[str, ...] = ()
    profile: str | None = None

    @property
    def losses_by_provider(self) -> dict[str, tuple[str, ...]]:
        """The losses it sends on each provider, optional ones last; none where the provider cannot run it."""
        by_provider: dict[str, tuple[str, ...]] = {}
        for provider, known in PROVIDER_LOSS_SUPPORT.items():
            optional = self.optional_losses if provider in self.optional_providers else ()
            runs = known.issuperset(self.losses)
            by_provider[provider] = (*self.losses, *(loss for loss in optional if loss in known)) if runs else ()
        return by_provider

    @property
    def refuses(self) -> tuple[str, ...]:
        """One sentence for every reason to refuse before a session exists."""
        missing = tuple(
            f"{provider}: has no {loss}" + (f" ({why})" if (why := WHY_MISSING.get((provider, loss))) else "")
            for provider, known in PROVIDER_LOSS_SUPPORT.items()
            for loss in self.losses
            if loss not in known
        )
        reduction = ("a backend whose cross_entropy is not a plain sum",) if self.needs_sum_reduction else ()
        return (*missing, *reduction, *self.also_refuses)

    def with_operations(self, *kinds: str) -> Self:
        """The row with more kinds that must be advertised, as a configuration asks for."""
        return replace(self, operations=tuple(dict.fromkeys((*self.operations, *kinds))))

    def with_run(self, role: str) -> Self:
        """The row with one more frozen run that answers log-probs, as a KL term asks for ("reference")."""
        if role in self.extra_runs:
            return self
        operations = tuple(dict.fromkeys((*self.operations, "logprobs")))
        per_cycle = f"{self.operations_per_cycle} + P·G logprobs ({role})"
        return replace(self, extra_runs=(*self.extra_runs, role), operations=operations, operations_per_cycle=per_cycle)


def _group_relative(
    name: str, title: str, contract: str, paper: str, *, loss: str = "importance_sampling", profile: str | None = None
) -> Algorithm:
    """A row of the family that differs in advantage, loss and nothing else."""
    return Algorithm(
        name=name,
        title=title,
        contract=contract,
        rollouts=True,
        operations=_SAMPLED,
        losses=(loss,),
        paper=paper,
        operations_per_cycle=_GROUPS,
        profile=profile,
    )


_ROWS = (
    Algorithm(
        name="sft",
        title="Supervised fine-tuning",
        contract="Maximum likelihood of given answers; prompt tokens have weight 0.",
        rollouts=False,
        operations=_TRAIN,
        losses=("cross_entropy",),
        paper="arXiv 2203.02155",
        operations_per_cycle=_STEP,
    ),
    _group_relative(
        "grpo",
        "Group relative policy optimization",
        "Reward against the group's mean, over the group's standard deviation.",
        "arXiv 2402.03300",
        profile="GRPO",
    ),
    _group_relative(
        "grpo_nostd",
        "GRPO without standard deviation",
        "Reward against the group's mean; nothing is divided.",
        "arXiv 2503.20783",
    ),
    _group_relative(
        "grpo_len_norm",
        "Length-normalised GRPO",
        "GRPO's advantage over the completion's own length.",
        "arXiv 2402.03300",
    ),
    _group_relative(
        "drgrpo",
        "Dr. GRPO",
        "No-std advantages over a length (Whitney's default: the completion's own; the paper's: a constant); no KL.",
        "arXiv 2503.20783",
        profile="Dr_GRPO",
    ),
    _group_relative(
        "reinforce",
        "REINFORCE with a baseline",
        "Reward against the group's mean or a moving mean of earlier cycles; the plain policy gradient.",
        "Williams 1992",
        profile="REINFORCE",
    ),
    _group_relative(
        "ppo",
        "PPO without a critic",
        "GRPO's advantages under PPO's clipped objective; never sends ppo_critic.",
        "arXiv 1707.06347",
        loss="ppo",
    ),
    Algorithm(
        name="ppo_critic",
        title="PPO with a critic",
        contract="A critic run's values, GAE and returns; ppo for the policy, ppo_critic for the critic.",
        rollouts=True,
        operations=(*_SAMPLED, "forward"),
        losses=("ppo", "ppo_critic"),
        paper="arXiv 1707.06347, 1506.02438",
        operations_per_cycle=f"save_weights_for_sampler + P sample + forward (critic) + {_STEP} on both runs",
        extra_runs=("critic",),
        profile="PPO",
    ),
    _group_relative(
        "cispo",
        "CISPO",
        "The clipped ratio is a coefficient; no token's gradient is zeroed; never plain importance sampling.",
        "arXiv 2506.13585",
        loss="cispo",
        profile="CISPO",
    ),
    _group_relative(
        "gspo",
        "Group sequence policy optimization",
        "One ratio per sequence, made by the provider, under PPO's clip.",
        "arXiv 2507.18071",
        loss="gspo",
    ),
    _group_relative(
        "dppo",
        "Divergence proximal policy optimization",
        "A mask by divergence in place of the ratio's clip; no critic.",
        "arXiv 2602.04879",
        loss="dppo",
    ),
    _group_relative(
        "dro",
        "Direct reward optimization",
        "Likelihood times a centred reward, less a square of the distance to the sampler.",
        "arXiv 2405.19107",
        loss="dro",
        profile="DRO",
    ),
    replace(
        _group_relative(
            "dapo",
            "DAPO",
            "Overlong filter, declared and visible resampling, decoupled clip bounds 0.8 and 1.28.",
            "arXiv 2503.14476",
            loss="ppo",
            profile="DAPO",
        ),
        operations_per_cycle=f"save_weights_for_sampler + (P + resampled groups) sample + {_STEP}",
    ),
    _group_relative(
        "sapo",
        "Soft adaptive policy optimization",
        "The provider's own soft gate with explicit temperatures; never a clipped stand-in.",
        "arXiv 2511.20347",
        loss="sapo",
    ),
    _group_relative(
        "rloo",
        "REINFORCE leave-one-out",
        "Reward against the mean of the others; a reference run where a KL term is asked for.",
        "arXiv 2402.14740",
    ),
    replace(
        _group_relative(
            "reinforce_pp",
            "REINFORCE++",
            "Reward against the group's mean, less a KL term per token against the frozen initial weights.",
            "arXiv 2501.03262",
        ),
        operations=(*_SAMPLED, "logprobs"),
        optional_losses=("ppo",),
        extra_runs=("reference",),
        operations_per_cycle=_SCORED_BY.format("reference"),
    ),
    _group_relative(
        "maxrl",
        "MaxRL",
        "An explicit estimator: beat the best of the others, or divide by the mean reward; never GRPO.",
        "arXiv 2602.02710",
    ),
    Algorithm(
        name="opd",
        title="On-policy distillation",
        contract="A frozen teacher's log-probs on what the student sampled; no reward.",
        rollouts=True,
        operations=(*_SAMPLED, "logprobs"),
        losses=("importance_sampling",),
        paper="arXiv 2306.13649",
        operations_per_cycle=_SCORED_BY.format("teacher"),
        extra_runs=("teacher",),
        also_refuses=("a teacher whose tokenizer is not the student's",),
        profile="OPD",
    ),
    Algorithm(
        name="opsd",
        title="On-policy self-distillation",
        contract="The teacher is the same base model, shown the golden answer first; no reward.",
        rollouts=True,
        operations=(*_SAMPLED, "logprobs"),
        losses=("importance_sampling",),
        paper="arXiv 2601.19897",
        operations_per_cycle=_SCORED_BY.format("teacher"),
        optional_losses=("cross_entropy",),
        optional_providers=SOFT_TARGET_PROVIDERS,
        extra_runs=("teacher",),
        also_refuses=("examples without a demonstration", "modal: soft targets of top-K log-probs"),
    ),
    Algorithm(
        name="sdpo",
        title="Self-distillation policy optimization",
        contract="The teacher is the same base model, shown feedback on the student's own attempt.",
        rollouts=True,
        operations=(*_SAMPLED, "logprobs"),
        losses=("importance_sampling",),
        paper="arXiv 2601.20802",
        operations_per_cycle=_SCORED_BY.format("teacher"),
        extra_runs=("teacher",),
        also_refuses=("a configuration without a source of feedback",),
        profile="SDPO",
    ),
    Algorithm(
        name="dpo",
        title="Direct preference optimization",
        contract="Pairs of answers against the initial weights; the loss is the caller's, sent as gradient weights.",
        rollouts=False,
        operations=(*_TRAIN, "forward"),
        losses=("cross_entropy",),
        paper="arXiv 2305.18290",
        operations_per_cycle="forward + forward (reference) + forward_backward + optim_step",
        extra_runs=("reference",),
        needs_sum_reduction=True,
        also_refuses=("data without a pair of answers",),
        profile="DPO",
    ),
    replace(
        _group_relative(
            "ttt",
            "Test-time training",
            "One problem: entropic leave-one-out advantages, and the best solutions kept as starting states.",
            "arXiv 2601.16175",
            profile="TTT",
        ),
        also_refuses=("a verifier reward that is missing",),
    ),
    Algorithm(
        name="custom",
        title="A build_loss of your own",
        contract="The cookbook's build_loss(sample, cycle, request, ctx), called once a group.",
        rollouts=True,
        operations=_SAMPLED,
        losses=(),
        paper="the Whitney cookbook",
        operations_per_cycle=f"{_GROUPS} + what your function calls",
        also_refuses=("loss_function = cross_entropy where cross_entropy is not a plain sum",),
    ),
)

ALGORITHMS: dict[str, Algorithm] = {row.name: row for row in _ROWS}


def algorithm(name: str) -> Algorithm:
    """Look an algorithm up.

    Raises:
        ValueError: an unknown name, with the nearest one if there is a near one.
    """
    if name in ALGORITHMS:
        return ALGORITHMS[name]
    hint = did_you_mean(name, ALGORITHMS)
    raise ValueError(f"unknown algorithm {name!r}: {hint}known: {', '.join(sorted(ALGORITHMS))}")


def require_losses(row: Algorithm, provider: str) -> None:
    """The part of `require_runnable` that needs no endpoint.

    Raises:
        ValueError: a provider that is not known, or known not to have one of the row's losses.
    """
    require_provider(provider)
    for loss in row.losses:
        require_advertised_loss(provider, loss)


def require_runnable(
    row: Algorithm, provider: str, advertised_operations: Collection[str], loss_reduction: str = "sum"
) -> None:
    """Refuse, before any session, what a provider cannot execute.

    Args:
        row: what is to be run.
        provider: "modal", "tinker" or "local".
        advertised_operations: the capability row's.
        loss_reduction: the capability row's: "sum", or "mean".

    Raises:
        ValueError: a loss the provider is known not to have, operations its capability row does not advertise, or a
            reduction that gradient weights do not survive.
    """
    require_losses(row, provider)
    missing = sorted(set(row.operations) - set(advertised_operations))
    if missing:
        raise ValueError(
            f"{row.name} needs {', '.join(missing)}, which {provider} does not advertise "
            f"(advertised: {', '.join(sorted(advertised_operations))})"
        )
    if row.needs_sum_reduction and loss_reduction != "sum":
        raise ValueError(
            f"{row.name} sends its gradient as cross_entropy weights, which is right only where cross_entropy is a "
            f"plain sum; {provider}'s loss_reduction is {loss_reduction!r}. Use a deployment that sums"
        )
