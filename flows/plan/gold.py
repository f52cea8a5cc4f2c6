"""What the rewards say of the right answers: seen before anything is paid for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from pydantic import SecretStr

from flows.checks.prepared import Prepared
from tasks import rewards
from tasks.completion import Completion
from tasks.examples import Example
from tasks.reward_pool import IN_VAIN
from tasks.rewards import Failures, RewardPool

AT_ONCE = 2
"""Answers that are scored together: as many as a pool has workers."""

SCORED = 64
"""Answers that are scored: enough to tell a reward that fits the data from one that does not."""


@dataclass(frozen=True, slots=True)
class Gold:
    """The data's own answers, scored as if the model had given them.

    Args:
        answers: how many were tried.
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
    def warnings(self) -> Iterator[str]:
        """What to say where the rewards and the data do not go together."""
        if self.mean == 0:
            yield (
                "The rewards give the data's own answers 0, so nothing can be learnt from them: either the answers are "
                "wrong, or the rewards ask for what a right answer does not have."
            )
        if self.unscored:
            yield (
                f"{self.unscored} of {self.answers} of the data's own answers have no reward, that of example "
                f"{self.example} for one: {self.why}."
            )


async def gold(prepared: Prepared, keys: Sequence[SecretStr] = ()) -> Gold | None:
    """What the rewards make of the right answers; None where there is no reward, or no answer.

    `keys` are taken out of what a reward function says.
    """
    answered = [one for one in prepared.data.train if one.answer is not None][:SCORED]
    if not (answered and prepared.rewards):
        return None
    totals, failures = await _scored(prepared, answered, keys)
    found = [score for score in totals if score is not None]
    without = [one.id for one, score in zip(answered, totals, strict=False) if score is None]
    mean = fmean(found) if found else None
    why = failures.told() + ("; the others are not scored" if len(totals) < len(answered) else "")
    return Gold(len(totals), mean, len(without), without[0] if without else None, why)


async def _scored(
    prepared: Prepared, answered: Sequence[Example], keys: Sequence[SecretStr]
) -> tuple[list[float | None], Failures]:
    """Rewards of the first answers, and why some have none. A function that hangs is waited for twice, not 64 times."""
    totals: list[float | None] = []
    failures = Failures()
    async with RewardPool(timeout_s=prepared.config.reward_timeout_s, keys=keys) as pool:
        for few in (answered[start : start + AT_ONCE] for start in range(0, len(answered), AT_ONCE)):
            scores = await rewards.score([_as_replied(prepared, one) for one in few], prepared.rewards, pool=pool)
            totals += scores.total
            failures.add(scores.failures)
            if sum(count for reason, count in failures.items() if IN_VAIN in reason) >= AT_ONCE:
                break
    return totals, failures


def _as_replied(prepared: Prepared, example: Example) -> Completion:
    answer = example.answer or ""
    count = len(prepared.renderer.completion_tokens(answer))
    return Completion(prompt=example.messages, text=answer, token_count=count, finished=True, example=example)
