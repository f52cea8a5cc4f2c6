"""What one wants to see before paying: how examples look to the model, and what rewards say of the right answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from pydantic import SecretStr

from algorithms import ALGORITHMS, sft_datum
from flows.checks.prepared import Prepared
from flows.config import TttConfig
from tasks import rewards
from tasks.completion import Completion
from tasks.examples import Example
from tasks.rewards import RewardPool

SHOWN = 3
SCORED = 64
"""Answers that are scored: enough to tell a reward that fits the data from one that does not."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token's text, special tokens among it, and whether it is trained."""

    text: str
    trained: bool


@dataclass(frozen=True, slots=True)
class Sample:
    """One example as the model meets it.

    Args:
        id: the example's.
        which: what the reply is: "answer", "chosen", "rejected"; "sampled" where it is still to be drawn.
        prompt: the text behind the chat template, special tokens among it. None of it is trained.
        prompt_tokens: how many tokens that is.
        reply: the reply's tokens; empty where it is still to be drawn.
        completions: how many are drawn; 0 where the reply is given.
        max_tokens: of each of those.
    """

    id: str
    which: str
    prompt: str
    prompt_tokens: int
    reply: list[Token]
    completions: int = 0
    max_tokens: int = 0


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


def samples(prepared: Prepared) -> list[Sample]:
    """The first examples that are trained on, in the run's own order; of DPO both replies of each."""
    config, train = prepared.config, prepared.data.train
    if isinstance(config, TttConfig):
        examples = [config.problem_of(train)]
    else:
        examples = [prepared.example_at(place) for place in range(min(SHOWN, len(train)))]
    return [sample for example in examples for sample in _samples(prepared, example)]


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


def _samples(prepared: Prepared, example: Example) -> Iterator[Sample]:
    renderer = prepared.renderer
    prompt = renderer.prompt_tokens(example)
    text = renderer.decode(prompt, skip_special=False)
    if ALGORITHMS[prepared.algorithm].rollouts:
        room = prepared.context_tokens - len(prompt)
        longest = max(0, min(prepared.config.sampling.max_tokens, room))
        drawn = getattr(prepared.config, "group_size", 1)
        yield Sample(example.id, "sampled", text, len(prompt), [], completions=drawn, max_tokens=longest)
        return
    names = ("chosen", "rejected") if prepared.algorithm == "dpo" else ("answer",)
    for which, reply in zip(names, example.replies, strict=True):
        completion = renderer.completion_tokens(reply)
        # The mask is the datum's own: the weights that are sent.
        weights = sft_datum(prompt, completion)["loss_inputs"]["weights"]["values"][-len(completion) :]
        pieces = [renderer.decode([token], skip_special=False) for token in completion]
        tokens = [Token(piece, bool(weight)) for piece, weight in zip(pieces, weights, strict=True)]
        yield Sample(example.id, which, text, len(prompt), tokens)


def _as_replied(prepared: Prepared, example: Example) -> Completion:
    answer = example.answer or ""
    count = len(prepared.renderer.completion_tokens(answer))
    return Completion(prompt=example.messages, text=answer, token_count=count, finished=True, example=example)
