"""From one sampled group to the datums it contributes, and what became of the rest."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from algorithms.advantages import Advantages, Estimate, Reward, all_zero, constant, is_scored
from algorithms.datums import Datum, rl_datum
from algorithms.kl import KlPenalty, TokenPenalty, kl_terms, same_length, shape_rewards
from algorithms.loss_terms import NO_TERMS, LossTerms
from algorithms.losses import forward_backward_payload, require_advertised_loss
from algorithms.reasons import EMPTY, TOO_FEW, UNSCORED, ZERO_SIGNAL

Sequences = Sequence[Mapping[str, Any]]
"""Sampled completions: {"tokens", "logprobs", "stop_reason"} and, where a KL term needs it, "reference_logprobs"."""


class LossContext(Protocol):
    """What a `build_loss` needs of the loop's `ctx`."""

    @property
    def provider(self) -> str:
        """The provider of the run: "modal", "tinker" or "local"."""
        ...


@dataclass(frozen=True, slots=True)
class GroupData:
    """What a group of G completions gives to the optimizer step.

    `advantages` has G places, None where the reward was unusable; `dropped_by_reason` counts the completions that are
    not in `data`. `zero_signal` says that the estimate found nothing in the group better than the rest: for a
    group-relative one, that the rewards were all equal.
    """

    data: list[Datum]
    advantages: Advantages
    dropped_by_reason: dict[str, int]
    zero_signal: bool


@dataclass(frozen=True, slots=True)
class Judged:
    """A group whose completions have their advantages and no datums yet; the fields are `GroupData`'s.

    `sent`: whether the group goes into the step.
    """

    advantages: Advantages
    dropped_by_reason: dict[str, int]
    zero_signal: bool
    sent: bool


def build_group(
    prompt_tokens: Sequence[int],
    sequences: Sequences,
    rewards: Sequence[Reward],
    estimate: Estimate,
    *,
    terms: LossTerms = NO_TERMS,
    kl: KlPenalty | TokenPenalty | None = None,
) -> GroupData:
    """Turn sampled sequences and their rewards_G into `rl_datum`s.

    A completion without a finite reward, or without a token, is not sent and takes no part in the group's statistics.
    A group in which nothing is better than the rest sends nothing, unless a KL term in the advantage gives it a
    gradient; one with too few usable rewards to compare never does.

    Args:
        prompt_tokens: p ≥ 1 token ids.
        sequences: G completions.
        rewards: G rewards; None or NaN for one that could not be scored.
        estimate: (rewards_G, lengths_G) → advantages_G.
        terms: bounds of the ratio, as `clip_range` gives them.
        kl: a penalty against a reference, whose log-probs every sequence then carries: a `KlPenalty`, or any function
            (logprobs_T, reference_logprobs_T) → penalties_T, subtracted from the advantages_T.

    Raises:
        ValueError: numbers of sequences and rewards that differ, fewer rewards than `estimate` needs, an empty prompt,
            reference log-probs that are missing or have another length.
    """
    judged = judge_group(sequences, rewards, estimate, kl)
    data = group_datums(prompt_tokens, sequences, judged.advantages, terms=terms, kl=kl) if judged.sent else []
    return GroupData(data, judged.advantages, judged.dropped_by_reason, judged.zero_signal)


def judge_group(
    sequences: Sequences, rewards: Sequence[Reward], estimate: Estimate, kl: KlPenalty | TokenPenalty | None = None
) -> Judged:
    """The first half of `build_group`: who takes part, and with which advantage."""
    if len(sequences) != len(rewards):
        raise ValueError(f"sequences has {len(sequences)} entries, rewards has {len(rewards)}: each sequence needs one")
    dropped: Counter[str] = Counter()
    usable: list[Reward] = []
    for sequence, reward in zip(sequences, rewards, strict=True):
        counts = bool(sequence["tokens"]) and is_scored(reward)
        usable.append(reward if counts else None)
        if not counts:
            dropped[UNSCORED if sequence["tokens"] else EMPTY] += 1
    if isinstance(kl, KlPenalty) and kl.place == "reward":
        usable = shape_rewards(usable, _kl_sums(sequences, kl), kl.coef)
    advantages = estimate(usable, [len(sequence["tokens"]) for sequence in sequences])
    count = sum(reward is not None for reward in usable)
    comparable = count > 1
    # Equal rewards are told by the rewards, since an estimate may leave 1e-17 of them; a baseline from outside the
    # group gives equal rewards a gradient; and an estimate may find nothing to teach in rewards that differ.
    flat = not any(advantages) or (constant(usable) and all_zero(advantages))
    has_penalty = _token_penalty(kl) is not None
    sent = count > 0 and (not flat or (comparable and has_penalty))
    if count and not sent:
        dropped[ZERO_SIGNAL if comparable else TOO_FEW] += count
    return Judged(advantages, dict(dropped), zero_signal=flat and comparable, sent=sent)


def group_datums(
    prompt_tokens: Sequence[int],
    sequences: Sequences,
    advantages: Advantages,
    *,
    terms: LossTerms = NO_TERMS,
    kl: KlPenalty | TokenPenalty | None = None,
) -> list[Datum]:
    """The second half of `build_group`: one datum per completion that has an advantage."""
    penalty = _token_penalty(kl)
    return [
        rl_datum(
            prompt_tokens,
            sequence["tokens"],
            sequence["logprobs"],
            advantage if penalty is None else _penalised(advantage, sequence, place, penalty),
            clip_low=terms.clip_low,
            clip_high=terms.clip_high,
        )
        for place, (sequence, advantage) in enumerate(zip(sequences, advantages, strict=True))
        if advantage is not None
    ]


def group_loss(
    sample: Mapping[str, Any],
    request: Mapping[str, Any],
    ctx: LossContext,
    estimate: Estimate,
    loss_function: str,
    *,
    terms: LossTerms = NO_TERMS,
    kl: KlPenalty | TokenPenalty | None = None,
) -> dict[str, Any]:
    """The body that every rollout algorithm's `build_loss` shares: one sampled group in, one payload out.

    Each of `sample["sequences"]` carries its `reward` (a number, or None when it could not be scored). The loss is the
    plain sum; a loop that wants a mean over the whole step scales the concatenated data.

    Raises:
        ValueError: the provider does not have the loss, or as `build_group`.
        NoGradientError: the group has nothing to teach.
    """
    require_advertised_loss(ctx.provider, loss_function)
    sequences = sample["sequences"]
    rewards = [sequence.get("reward") for sequence in sequences]
    group = build_group(request["prompt"]["token_ids"], sequences, rewards, estimate, terms=terms, kl=kl)
    return forward_backward_payload(group.data, loss_function, terms.loss_config)


def reference_logprobs(sequence: Mapping[str, Any], place: int) -> Sequence[float]:
    """The reference's log-probs of a completion, one per token.

    Raises:
        ValueError: there are none, or not one per token; names the completion's place in its group and the lengths.
    """
    count, given = len(sequence["tokens"]), sequence.get("reference_logprobs")
    if given is None or len(given) != count:
        found = "none" if given is None else str(len(given))
        raise ValueError(
            f"sequence {place} has {count} tokens and {found} reference_logprobs: a KL term needs one per token"
        )
    logprobs: Sequence[float] = given
    return logprobs


def _token_penalty(kl: KlPenalty | TokenPenalty | None) -> TokenPenalty | None:
    """What is to be subtracted token by token; a coefficient of 0 is no penalty."""
    if isinstance(kl, KlPenalty) and (kl.place == "reward" or kl.coef == 0):
        return None
    return kl


def _penalised(advantage: float, sequence: Mapping[str, Any], place: int, penalty: TokenPenalty) -> list[float]:
    penalties = penalty(sequence["logprobs"], reference_logprobs(sequence, place))
    same_length(tokens=sequence["tokens"], penalties=penalties)
    return [advantage - one for one in penalties]


def _kl_sums(sequences: Sequences, kl: KlPenalty) -> list[float]:
    return [
        math.fsum(kl_terms(sequence["logprobs"], reference_logprobs(sequence, place), kl.estimator))
        if sequence["tokens"]
        else 0.0
        for place, sequence in enumerate(sequences)
    ]
