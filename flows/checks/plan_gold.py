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
        mean: reward of those that have one; null where none has.
        unscored: those that have none.
        example: the first of these, by its id; null where all have one.
        why: the reasons, and how often.
    """

    answers: int
    mean: float | None
    unscored: int
    example: str | None
    why: str

    @property
    def warning(self) -> str | None:
        """What to say where the rewards and the data do not go together."""
        if self.mean == 0:
            return (
                "The rewards give the data's own answers 0, so nothing can be learnt from them: either the answers are "
                "wrong, or the rewards ask for what a right answer does not have."
            )
        return None


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
    without = [one.id for one, score in zip(answered, scores.total, strict=True) if score is None]
    mean = fmean(found) if found else None
    return Gold(len(answered), mean, len(without), without[0] if without else None, scores.failures.told())


def _as_replied(prepared: Prepared, example: Example) -> Completion:
    answer = example.answer or ""
    count = len(prepared.renderer.completion_tokens(answer))
    return Completion(prompt=example.messages, text=answer, token_count=count, finished=True, example=example)
