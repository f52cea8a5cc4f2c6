"""PPO with a critic: a second run learns what each state is worth, and is the baseline.

Contract: completions with one reward each, and a critic run beside the policy's whose `forward` gives V of the state
    before every token. No group baseline: one completion of a prompt is enough.
Maths: the reward sits on the last token; A_t by GAE(γ, λ), optionally normalised over the tokens of a step; returns
    R_t = A_t + V_t. Policy: −Σ min(ratio·A, clamp(ratio, 0.8, 1.2)·A). Critic: ½·Σ max((v_c − R)², (v − R)²) with
    v_c = v_old + clamp(v − v_old, ±value_clip).
Loss per provider: policy `ppo`, bounds in loss_config; critic `ppo_critic` with value_clip; on modal and local. The
    critic's loss is a sum on local, so that split requests add up; modal's own is a mean over sequences of token means.
Fails closed when: the provider has no `ppo_critic` (tinker) or no `ppo`; a completion comes without values. Empty
    completions and ones without a finite reward are dropped and counted.
Deviates from the paper by: no entropy bonus; policy and critic are separate adapters with an optimizer each.
Paper: arXiv 1707.06347 (PPO), 1506.02438 (GAE), 2203.02155 (for language models).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from algorithms.actor_critic import ActorCriticData, build, critic_datum, normalize_advantages, value_datum
from algorithms.groups import LossContext
from algorithms.losses import forward_backward_payload, require_advertised_loss
from algorithms.ppo import loss_terms

__all__ = ["CRITIC_LOSS", "LOSS_FUNCTION", "build", "critic_datum", "loss_terms", "normalize_advantages", "value_datum"]

LOSS_FUNCTION = "ppo"
CRITIC_LOSS = "ppo_critic"
VALUE_CLIP = 0.2


def build_loss(sample: Mapping[str, Any], cycle: int, request: Mapping[str, Any], ctx: LossContext) -> dict[str, Any]:
    """The policy's payload of one sampled group, each sequence with its `reward` and the critic's `values`.

    Raises:
        ValueError: as the module says under "Fails closed when".
        NoGradientError: no completion can be used.
    """
    require_advertised_loss(ctx.provider, CRITIC_LOSS)
    require_advertised_loss(ctx.provider, LOSS_FUNCTION)
    terms = loss_terms(ctx.provider)
    return forward_backward_payload(_data(sample, request).policy, LOSS_FUNCTION, terms.loss_config)


def build_critic_loss(
    sample: Mapping[str, Any], cycle: int, request: Mapping[str, Any], ctx: LossContext
) -> dict[str, Any]:
    """The critic run's payload of the same group.

    Raises:
        ValueError: as the module says under "Fails closed when".
        NoGradientError: no completion can be used.
    """
    require_advertised_loss(ctx.provider, CRITIC_LOSS)
    return forward_backward_payload(_data(sample, request).critic, CRITIC_LOSS, {"value_clip": VALUE_CLIP})


def _data(sample: Mapping[str, Any], request: Mapping[str, Any]) -> ActorCriticData:
    sequences = sample["sequences"]
    return build(request["prompt"]["token_ids"], sequences, [sequence.get("reward") for sequence in sequences])
