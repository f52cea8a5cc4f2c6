"""From one sampled group to the datums it contributes, and what became of the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from algorithms.advantages import Advantages, Reward, constant, is_scored
from algorithms.datums import Datum, rl_datum

UNSCORED = "unscored"
EMPTY = "empty_completion"
TOO_FEW = "too_few_rewards"
ZERO_SIGNAL = "zero_signal"


@dataclass(frozen=True, slots=True)
class GroupData:
    """What a group of G completions gives to the optimizer step.

    `advantages` has G places, None where the reward was unusable; `dropped_by_reason` counts the completions that are
    not in `data`. `zero_signal` says that the rewards were all equal: nothing in the group was better than the rest.
    """

    data: list[Datum]
    advantages: Advantages
    dropped_by_reason: dict[str, int]
    zero_signal: bool


def build_group(
    prompt_tokens: Sequence[int],
    sequences: Sequence[Mapping[str, Any]],
    rewards: Sequence[Reward],
    estimate: Callable[[Sequence[Reward]], Advantages],
) -> GroupData:
    """Turn sampled sequences (`{"tokens", "logprobs", …}`) and their rewards_G into `rl_datum`s.

    A completion without a finite reward, or without a token, is not sent and takes no part in the group's statistics.
    A group with equal rewards, or with fewer than two usable ones, sends nothing.

    Raises:
        ValueError: numbers of sequences and rewards that differ, fewer than two of them, an empty prompt.
    """
    if len(sequences) != len(rewards):
        raise ValueError(f"sequences has {len(sequences)} entries, rewards has {len(rewards)}: each sequence needs one")
    dropped: Counter[str] = Counter()
    usable: list[Reward] = []
    for sequence, reward in zip(sequences, rewards, strict=True):
        reason = EMPTY if not sequence["tokens"] else None if is_scored(reward) else UNSCORED
        if reason:
            dropped[reason] += 1
        usable.append(None if reason else reward)
    advantages = estimate(usable)
    count = sum(reward is not None for reward in usable)
    flat = constant(usable)
    if flat and count:
        dropped[ZERO_SIGNAL if count > 1 else TOO_FEW] += count
    data = [
        rl_datum(prompt_tokens, sequence["tokens"], sequence["logprobs"], advantage)
        for sequence, advantage in zip(sequences, advantages, strict=True)
        if advantage is not None and not flat
    ]
    return GroupData(data, advantages, dict(dropped), zero_signal=flat and count > 1)
