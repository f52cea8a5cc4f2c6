"""Pure maths: from rewards and token ids to the payloads of the wire. No Prefect, no HTTP, no input or output.

Whatever a loop needs is importable from here. Each algorithm has a file of its own name (`from algorithms import rloo`)
with its LOSS_FUNCTION and its `build_loss`; the package's own `build_loss` is GRPO's, the spine that the others extend.
`gae` is only in the module of that name.
"""

from algorithms.advantages import (
    Advantages,
    Estimate,
    Reward,
    StdConvention,
    all_zero,
    baseline_advantages,
    group_mean_advantages,
    leave_one_out_baseline,
    length_normalize,
    max_relative_advantage,
    mean_normalized_advantage,
    moving_baseline,
    whiten,
)
from algorithms.aggregation import Aggregation, aggregation_scales, scale_data
from algorithms.batches import Batch, ScoredGroup, build_batch
from algorithms.datums import Datum, Tensor, rl_datum, sft_datum, tensor, trained_tokens
from algorithms.distillation import distillation_group, reverse_kl
from algorithms.dpo import DpoStep, dpo_step
from algorithms.entropic import entropic_advantages, solve_beta
from algorithms.gae import terminal_rewards
from algorithms.gradient_weights import at_trained, weighted_data
from algorithms.groups import GroupData, LossContext, build_group, group_loss
from algorithms.grpo import build_loss
from algorithms.intervals import clustered_interval, difference_interval
from algorithms.kl import (
    KlEstimate,
    KlEstimator,
    KlPenalty,
    TokenPenalty,
    kl_adjust_advantages,
    kl_estimate,
    kl_terms,
    shape_rewards,
)
from algorithms.loss_terms import NO_TERMS, LossTerms, clip_range
from algorithms.losses import (
    MODAL_LOSS_CONFIG_KEYS,
    PROVIDER_LOSS_SUPPORT,
    NoGradientError,
    adamw_optimizer,
    forward_backward_payload,
    require_advertised_loss,
    result_sampler_id,
)
from algorithms.metrics import (
    length_stats,
    mean_nll,
    reward_stats,
    sampled_logprobs,
    sampler_agreement,
    stop_shares,
    trained_logprobs,
    zero_signal_fraction,
)
from algorithms.overlong import is_overlong, soft_overlong_penalty
from algorithms.passk import pass_at_k
from algorithms.preference_loss import DpoLoss, dpo_loss
from algorithms.preferences import Pair, Pairs, pair_data, pair_up
from algorithms.puct import Buffer
from algorithms.registry import ALGORITHMS, Algorithm, algorithm, require_losses, require_runnable
from algorithms.resampling import ResamplePolicy, Retained, retained
from algorithms.schedules import Schedule, learning_rate
from algorithms.seeds import request_seed
from algorithms.soft_targets import require_soft_targets, soft_target_datum, soft_target_group
from algorithms.solutions import Solution
from algorithms.teacher_answers import completion_logprobs, completion_topk

__all__ = [
    "ALGORITHMS",
    "MODAL_LOSS_CONFIG_KEYS",
    "NO_TERMS",
    "PROVIDER_LOSS_SUPPORT",
    "Advantages",
    "Aggregation",
    "Algorithm",
    "Batch",
    "Buffer",
    "Datum",
    "DpoLoss",
    "DpoStep",
    "Estimate",
    "GroupData",
    "KlEstimate",
    "KlEstimator",
    "KlPenalty",
    "LossContext",
    "LossTerms",
    "NoGradientError",
    "Pair",
    "Pairs",
    "ResamplePolicy",
    "Retained",
    "Reward",
    "Schedule",
    "ScoredGroup",
    "Solution",
    "StdConvention",
    "Tensor",
    "TokenPenalty",
    "adamw_optimizer",
    "aggregation_scales",
    "algorithm",
    "all_zero",
    "at_trained",
    "baseline_advantages",
    "build_batch",
    "build_group",
    "build_loss",
    "clip_range",
    "clustered_interval",
    "completion_logprobs",
    "completion_topk",
    "difference_interval",
    "distillation_group",
    "dpo_loss",
    "dpo_step",
    "entropic_advantages",
    "forward_backward_payload",
    "group_loss",
    "group_mean_advantages",
    "is_overlong",
    "kl_adjust_advantages",
    "kl_estimate",
    "kl_terms",
    "learning_rate",
    "leave_one_out_baseline",
    "length_normalize",
    "length_stats",
    "max_relative_advantage",
    "mean_nll",
    "mean_normalized_advantage",
    "moving_baseline",
    "pair_data",
    "pair_up",
    "pass_at_k",
    "request_seed",
    "require_advertised_loss",
    "require_losses",
    "require_runnable",
    "require_soft_targets",
    "result_sampler_id",
    "retained",
    "reverse_kl",
    "reward_stats",
    "rl_datum",
    "sampled_logprobs",
    "sampler_agreement",
    "scale_data",
    "sft_datum",
    "shape_rewards",
    "soft_overlong_penalty",
    "soft_target_datum",
    "soft_target_group",
    "solve_beta",
    "stop_shares",
    "tensor",
    "terminal_rewards",
    "trained_logprobs",
    "trained_tokens",
    "weighted_data",
    "whiten",
    "zero_signal_fraction",
]
