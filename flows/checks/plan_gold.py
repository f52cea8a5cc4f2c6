"""What the rewards say of the right answers: seen before anything is paid for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from pydantic import SecretStr

from flows.checks.prepared import Prepared
from tasks import rewards
from tasks.completion import Completion
from tasks.examples import Example
from tasks.rewards import RewardPool

SCORED = 64
"""Answers that are scored: enough to tell a reward that fits the data from one that does not."""


@dataclass(frozen=True, slots=True)
class Gold:
    """The data's own answers, scored as if the model had given them.

    Args:
        answers: how many were scored.
        mean: reward of those that have one; None where none has.
        unscored: those that have none.
        why: the reasons, and how often.
    """

    answers: int
    mean: float | None
    unscored: int
    why: str


async def gold(prepared: Prepared, keys: Sequence[SecretStr] = ()) -> Gold | None:
    """What the rewards make of the right answers; None where there is no reward, or no answer.

    `keys` are taken out of what a reward function says.
    """
    answered = [one for one in prepared.data.train if one.answer is not None][:SCORED]
    if not (answered and prepared.rewards):
        return None
    async with RewardPool(timeout_s=prepared.config.reward_timeout_s, keys=keys) as pool:
        scores = await rewards.score([_as_replied(prepared, one) for one in answered], prepared.rewards, pool=pool)
    found = [score for score in scores.total if score is not None]
    return Gold(len(answered), fmean(found) if found else None, len(answered) - len(found), scores.failures.told())


def _as_replied(prepared: Prepared, example: Example) -> Completion:
    answer = example.answer or ""
    count = len(prepared.renderer.completion_tokens(answer))
    return Completion(prompt=example.messages, text=answer, token_count=count, finished=True, example=example)
