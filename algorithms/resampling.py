"""Dynamic sampling: which of a prompt's completions are kept, and whether more are needed. The draws are the flow's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from algorithms.advantages import Reward, constant, is_scored
from algorithms.groups import Sequences
from algorithms.overlong import is_overlong
from algorithms.reasons import EMPTY, OVERLONG, UNSCORED, ZERO_SIGNAL

OnZeroSignal = Literal["same_prompt", "next_prompt"]


@dataclass(frozen=True, slots=True)
class ResamplePolicy:
    """What a cycle may spend on groups that came out too small, or without signal.

    Args:
        target_group_size: completions a group needs before it is trained on, at least 2.
        max_rounds: rounds of drawing again in one cycle, after the first draw.
        max_operations: further `sample` operations in one cycle, over all its prompts.
        zero_signal: draw again for a complete group with equal rewards, or go on to the next prompt of the data.
        drop_overlong: leave out completions that were cut off at max_tokens.

    Raises:
        ValueError: a number out of its range, an unknown `zero_signal`.
    """

    target_group_size: int
    max_rounds: int
    max_operations: int
    zero_signal: OnZeroSignal = "next_prompt"
    drop_overlong: bool = True

    def __post_init__(self) -> None:
        least = {"target_group_size": 2, "max_rounds": 0, "max_operations": 0}
        for name, lowest in least.items():
            if getattr(self, name) < lowest:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be at least {lowest}")
        if self.zero_signal not in get_args(OnZeroSignal):
            raise ValueError(f"zero_signal {self.zero_signal!r} is unknown: use 'same_prompt' or 'next_prompt'")


@dataclass(frozen=True, slots=True)
class Retained:
    """The decision on all completions a prompt has had so far.

    `sequences` and their `rewards` are those to train on; `dropped` counts the others by reason. `missing`: how many
    more are needed to reach the target size. `zero_signal`: the target was reached with equal rewards; nothing is
    retained then, and every completion that was otherwise good counts as dropped for that.
    """

    sequences: list[Mapping[str, Any]]
    rewards: list[float]
    dropped: Counter[str]
    missing: int
    zero_signal: bool

    @property
    def complete(self) -> bool:
        """Whether the group can be trained on as it is."""
        return not self.missing


def retained(sequences: Sequences, rewards: Sequence[Reward], policy: ResamplePolicy) -> Retained:
    """Keep what can be trained on: not empty, not overlong, scored, and as a group not all equal.

    Called again with everything drawn so far after each round: a further round may bring the signal that was missing.
    More than the target size is kept, since it has been paid for. Equal rewards are judged only in a group that is
    large enough; a smaller one is drawn for again anyway. Source: dynamic sampling, arXiv 2503.14476.

    Raises:
        ValueError: numbers of sequences and rewards that differ.
    """
    if len(sequences) != len(rewards):
        raise ValueError(f"sequences has {len(sequences)} entries, rewards has {len(rewards)}: each sequence needs one")
    kept: list[Mapping[str, Any]] = []
    scores: list[float] = []
    dropped: Counter[str] = Counter()
    for sequence, reward in zip(sequences, rewards, strict=True):
        if not sequence["tokens"]:
            dropped[EMPTY] += 1
        elif policy.drop_overlong and is_overlong(sequence):
            dropped[OVERLONG] += 1
        elif not is_scored(reward):
            dropped[UNSCORED] += 1
        else:
            kept.append(sequence)
            scores.append(reward)
    zero_signal = len(kept) >= policy.target_group_size and constant(scores)
    if zero_signal:
        dropped[ZERO_SIGNAL] += len(kept)
        kept, scores = [], []
    return Retained(kept, scores, dropped, max(0, policy.target_group_size - len(kept)), zero_signal)
