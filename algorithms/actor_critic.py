"""From completions, rewards and a critic's values to the datums of two runs: the policy's and the critic's."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from algorithms.advantages import MIN_STD, Reward, is_scored
from algorithms.datums import Datum, rl_datum, sft_datum, tensor
from algorithms.gae import gae, terminal_rewards
from algorithms.gradient_weights import at_trained
from algorithms.groups import Sequences
from algorithms.kl import same_length
from algorithms.loss_terms import NO_TERMS, LossTerms
from algorithms.reasons import EMPTY, UNSCORED


class ActorCriticData(NamedTuple):
    """One `ppo` datum and one `ppo_critic` datum per completion that is used, and the rest counted by reason."""

    policy: list[Datum]
    critic: list[Datum]
    dropped_by_reason: dict[str, int]


def critic_datum(
    prompt_tokens: Sequence[int], tokens: Sequence[int], *, values: Sequence[float], returns: Sequence[float]
) -> Datum:
    """A `ppo_critic` datum: `target_tokens`, `weights`, `values` and `returns`, right-shifted, zeros on the prompt.

    The value at a position is of the state before its target token is chosen.

    Args:
        prompt_tokens: p ≥ 1 token ids.
        tokens: the n ≥ 1 sampled ones.
        values: n values of the critic that the returns were reckoned with: `value_clip` is about moving from them.
        returns: n returns R_t.

    Raises:
        ValueError: an empty prompt or completion, or lists whose lengths are not n.
    """
    same_length(tokens=tokens, values=values, returns=returns)
    datum = sft_datum(prompt_tokens, tokens)
    pad = [0.0] * (len(prompt_tokens) - 1)
    for name, per_token in (("values", values), ("returns", returns)):
        datum["loss_inputs"][name] = tensor("float32", [*pad, *per_token])
    return datum


def value_datum(prompt_tokens: Sequence[int], tokens: Sequence[int]) -> Datum:
    """What the critic is asked with by `forward`, before there are values; `at_trained` picks n out of its answer.

    Raises:
        ValueError: an empty prompt or completion.
    """
    zeros = [0.0] * len(tokens)
    return critic_datum(prompt_tokens, tokens, values=zeros, returns=zeros)


def build(
    prompt_tokens: Sequence[int],
    sequences: Sequences,
    rewards: Sequence[Reward],
    *,
    gamma: float = 1.0,
    lam: float = 0.95,
    terms: LossTerms = NO_TERMS,
) -> ActorCriticData:
    """The datums of one prompt's completions; one is enough, since the critic is the baseline.

    The reward counts on a completion's last token, and nothing is expected behind it, cut off or not: what was scored
    is the completion as it is. A completion without a token, or without a finite reward, is dropped and counted.

    Args:
        prompt_tokens: p ≥ 1 token ids.
        sequences: completions `{"tokens", "logprobs", "values"}`, with the critic's n values of the state before each.
        rewards: one per completion.
        gamma: γ, and `lam` λ, as `algorithms.gae.gae`.
        terms: bounds of the ratio, for providers that read them from the datum.

    Raises:
        ValueError: lists that do not pair, a completion without `values`, γ or λ outside [0, 1].
    """
    if len(sequences) != len(rewards):
        raise ValueError(f"sequences has {len(sequences)} entries, rewards has {len(rewards)}: each sequence needs one")
    built = ActorCriticData([], [], {})
    dropped: Counter[str] = Counter()
    for place, (sequence, reward) in enumerate(zip(sequences, rewards, strict=True)):
        tokens, values = sequence["tokens"], sequence.get("values")
        if not tokens or not is_scored(reward):
            dropped[UNSCORED if tokens else EMPTY] += 1
            continue
        if values is None:
            raise ValueError(f"sequence {place} has no values: ask the critic by `forward` with its `value_datum`")
        same_length(tokens=tokens, values=values)
        advantages, returns = gae(terminal_rewards(reward, len(tokens)), values, gamma=gamma, lam=lam)
        bounds = {"clip_low": terms.clip_low, "clip_high": terms.clip_high}
        built.policy.append(rl_datum(prompt_tokens, tokens, sequence["logprobs"], advantages, **bounds))
        built.critic.append(critic_datum(prompt_tokens, tokens, values=values, returns=returns))
    return built._replace(dropped_by_reason=dict(dropped))


def normalize_advantages(data: Sequence[Datum], *, scale: bool = True) -> list[Datum]:
    """The policy's datums of a whole step, advantages with mean 0 and population std 1 over all its trained tokens.

    A deviation below 1e-6 is not divided by; without `scale` none is, and the mean alone is taken off: a baseline,
    which leaves the expected gradient as it is. The given datums are left alone.
    """
    given = [at_trained(datum, datum["loss_inputs"]["advantages"]["values"]) for datum in data]
    values = [advantage for one in given for advantage in one]
    if not values:
        return list(data)
    mean = math.fsum(values) / len(values)
    std = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))
    factor = 1.0 / std if scale and std >= MIN_STD else 1.0
    return [_with_advantages(datum, [(a - mean) * factor for a in one]) for datum, one in zip(data, given, strict=True)]


def _with_advantages(datum: Datum, advantages: Sequence[float]) -> Datum:
    """The datum with other advantages, which fill its trained positions: the last ones."""
    inputs = datum["loss_inputs"]
    pad = [0.0] * (len(inputs["weights"]["values"]) - len(advantages))
    return {**datum, "loss_inputs": {**inputs, "advantages": tensor("float32", [*pad, *advantages])}}
