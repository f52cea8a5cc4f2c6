"""Pure maths: from rewards and token ids to the payloads of the wire. No Prefect, no HTTP, no input or output.

Whatever a loop needs is importable from here; `algorithms.grpo` and `algorithms.sft` hold one algorithm each; the
package's own `build_loss` is GRPO's, the spine that the other rollout algorithms extend.
"""

from algorithms.advantages import (
    all_zero,
    group_mean_advantages,
    leave_one_out_baseline,
    length_normalize,
    max_relative_advantage,
)
from algorithms.aggregation import Aggregation, aggregation_scales, scale_data
from algorithms.datums import Datum, Tensor, rl_datum, sft_datum, tensor, trained_tokens
from algorithms.groups import GroupData
from algorithms.grpo import build_loss
from algorithms.kl import KlEstimate, kl_adjust_advantages, kl_estimate
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
from algorithms.registry import ALGORITHMS, Algorithm, algorithm, require_runnable
from algorithms.schedules import Schedule, learning_rate
from algorithms.seeds import request_seed

__all__ = [
    "ALGORITHMS",
    "MODAL_LOSS_CONFIG_KEYS",
    "PROVIDER_LOSS_SUPPORT",
    "Aggregation",
    "Algorithm",
    "Datum",
    "GroupData",
    "KlEstimate",
    "NoGradientError",
    "Schedule",
    "Tensor",
    "adamw_optimizer",
    "aggregation_scales",
    "algorithm",
    "all_zero",
    "build_loss",
    "forward_backward_payload",
    "group_mean_advantages",
    "kl_adjust_advantages",
    "kl_estimate",
    "learning_rate",
    "leave_one_out_baseline",
    "length_normalize",
    "length_stats",
    "max_relative_advantage",
    "mean_nll",
    "request_seed",
    "require_advertised_loss",
    "require_runnable",
    "result_sampler_id",
    "reward_stats",
    "rl_datum",
    "sampled_logprobs",
    "sampler_agreement",
    "scale_data",
    "sft_datum",
    "stop_shares",
    "tensor",
    "trained_logprobs",
    "trained_tokens",
    "zero_signal_fraction",
]
