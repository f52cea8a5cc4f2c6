"""The table of algorithms, a row each, as data.

In `operations_per_cycle` P is prompts (or pairs, or examples) per cycle, G completions per prompt, K optimizer steps on
a cycle's batch. Not counted: save_state at a block's end, a frozen run's one snapshot, evaluation, and the export.
What cannot be sent is not: a prompt that fills the context, the steps of a cycle in which nothing is to be trained.
"""

from __future__ import annotations

from dataclasses import replace

from algorithms.contract import Algorithm
from algorithms.soft_targets import SOFT_TARGET_PROVIDERS

_TRAIN = ("forward_backward", "optim_step", "save_state", "export_lora")
_ROLLOUT = ("save_weights_for_sampler", "sample")
_SAMPLED = (*_TRAIN, *_ROLLOUT)

_STEP = "K × (forward_backward + optim_step)"
_GROUPS = f"save_weights_for_sampler + P sample + {_STEP}"
_SCORED_BY = "save_weights_for_sampler + P sample + P·G logprobs ({}) + " + _STEP


def _group_relative(
    name: str,
    title: str,
    contract: str,
    paper: str,
    *,
    loss: str = "importance_sampling",
    profile: str | None = None,
    family: str | None = None,
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
        family=family,
    )


def _taught(
    name: str,
    title: str,
    contract: str,
    paper: str,
    also_refuses: tuple[str, ...],
    *,
    profile: str | None = None,
    family: str | None = None,
) -> Algorithm:
    """A row of those whose signal is a frozen teacher's log-probs of what the student sampled."""
    return Algorithm(
        name=name,
        title=title,
        contract=contract,
        rollouts=True,
        operations=(*_SAMPLED, "logprobs"),
        losses=("importance_sampling",),
        paper=paper,
        operations_per_cycle=_SCORED_BY.format("teacher"),
        extra_runs=("teacher",),
        also_refuses=also_refuses,
        profile=profile,
        family=family,
    )


ROWS: tuple[Algorithm, ...] = (
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
        family="GRPO",
    ),
    _group_relative(
        "grpo_len_norm",
        "Length-normalised GRPO",
        "GRPO's advantage over the completion's own length.",
        "arXiv 2402.03300",
        family="GRPO",
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
        family="GRPO",
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
        forwards_per_cycle=1,
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
        family="GRPO",
    ),
    _group_relative(
        "dppo",
        "Divergence proximal policy optimization",
        "A mask by divergence in place of the ratio's clip; no critic.",
        "arXiv 2602.04879",
        loss="dppo",
        family="GRPO",
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
        family="GRPO",
    ),
    _group_relative(
        "rloo",
        "REINFORCE leave-one-out",
        "Reward against the mean of the others; a reference run where a KL term is asked for.",
        "arXiv 2402.14740",
        family="REINFORCE",
    ),
    replace(
        _group_relative(
            "reinforce_pp",
            "REINFORCE++",
            "Reward against the group's mean, less a KL term per token against the frozen initial weights.",
            "arXiv 2501.03262",
            family="REINFORCE",
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
        family="REINFORCE",
    ),
    _taught(
        "opd",
        "On-policy distillation",
        "A frozen teacher's log-probs on what the student sampled; no reward.",
        "arXiv 2306.13649",
        ("a teacher whose tokenizer is not the student's",),
        profile="OPD",
    ),
    replace(
        _taught(
            "opsd",
            "On-policy self-distillation",
            "The teacher is the model the student began as, shown the golden answer first; no reward.",
            "arXiv 2601.19897",
            ("examples without a demonstration", "modal: soft targets of top-K log-probs"),
            family="SDPO",
        ),
        optional_losses=("cross_entropy",),
        optional_providers=SOFT_TARGET_PROVIDERS,
    ),
    _taught(
        "sdpo",
        "Self-distillation policy optimization",
        "The teacher is the model the student began as, shown feedback on the student's own attempt.",
        "arXiv 2601.20802",
        ("a configuration without a source of feedback",),
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
        forwards_per_cycle=2,
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
