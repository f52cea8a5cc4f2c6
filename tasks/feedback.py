"""Feedback on attempts: the words a teacher is shown beside a student's attempt, and where they come from.

A source is named by a short text:

    verifier            a sentence made of the reward: what was read as the answer, and whether it is right
    verifier:reveal     the same, and the right answer
    sibling             another attempt of the same group, one that succeeded
    field:NAME          what the example's line says under NAME
    constant:TEXT       always the same words: the control that a source has to beat
    module:function     a function of yours, called as f(completion, reward=…), sync or async; it returns text, or None
                        where it has nothing to say, and runs in a worker with a time limit, as reward functions do

An attempt for which there is nothing to say has no feedback (None), and the reason is counted.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from algorithms.names import did_you_mean
from tasks.builtin_rewards import last_number
from tasks.completion import Completion
from tasks.examples import DataError, Example
from tasks.redaction import keyless, told
from tasks.rendering import Renderer
from tasks.reward_pool import Failed, Job, RewardPool
from tasks.reward_worker import load_function
from tasks.rewards import RewardTerm
from tasks.scoring import Group
from tasks.teacher_prompts import field_text

Kind = Literal["verifier", "sibling", "field", "constant", "function"]
NAMES = ("verifier", "verifier:reveal", "sibling", "field:NAME", "constant:TEXT")

NOTHING_TO_SAY = "had nothing to say"
"""The one reason that is no failure of a user's function."""

MOST_CHARACTERS = 20_000
"""Longer feedback is none: it would fill any context here, and turning it into tokens would hold up the whole flow."""

SIBLING_INTRODUCTION = "Another attempt at the same question succeeded. This was it:\n\n"


@dataclass(frozen=True, slots=True)
class FeedbackSource:
    """Where feedback comes from.

    Attributes:
        kind: which of the sources.
        value: its field's name, its constant text, or its "module:function".
        success: the reward from which on an attempt counts as right.
        reward: the reward term whose reading of the attempt the verifier describes, if it is one that can be described.
        reveal: whether the verifier also says the right answer.
    """

    kind: Kind
    value: str = ""
    success: float = 1.0
    reward: RewardTerm | None = None
    reveal: bool = False


def resolve(spec: str, *, success: float = 1.0, reward: RewardTerm | None = None) -> FeedbackSource:
    """The source that `spec` names. A user's module is imported.

    Raises:
        ValueError: an unknown source, one without its field or text, or a function that cannot be called.
    """
    name, _, value = spec.partition(":")
    if spec in {"verifier", "verifier:reveal"}:
        return FeedbackSource("verifier", success=success, reward=reward, reveal=value == "reveal")
    if spec == "sibling":
        return FeedbackSource("sibling", success=success)
    if name in {"field", "constant"}:
        if not value.strip():
            raise ValueError(
                f"feedback {spec!r}: after the colon stands {'a field' if name == 'field' else 'the text'}"
            )
        return FeedbackSource("field" if name == "field" else "constant", value)
    if not value or name in {"verifier", "sibling"}:
        raise ValueError(
            f"feedback {spec!r} is unknown: {did_you_mean(spec, NAMES)}use {', '.join(NAMES)}, or your own function as "
            "'module:function'"
        )
    _check_function(spec)
    return FeedbackSource("function", spec)


def check_feedback(source: FeedbackSource, examples: Sequence[Example]) -> None:
    """Make sure that a source has something to say about the data.

    Raises:
        DataError: no example has the field, or an answer to reveal.
    """
    field = source.value if source.kind == "field" else "answer" if source.reveal else None
    if field is not None and not any(field_text(example, field) for example in examples):
        raise DataError(f"not one of {len(examples)} examples has text in the field {field!r}, which is the feedback")


async def feedback_for(
    groups: Sequence[Group],
    source: FeedbackSource | str,
    *,
    renderer: Renderer,
    pool: RewardPool,
    missing: Counter[str] | None = None,
) -> list[list[str | None]]:
    """Feedback on every attempt of scored groups: for each group a list in the order of its sequences.

    Args:
        groups: groups that have their rewards.
        source: where it comes from, or its name.
        renderer: to read the attempts as text.
        pool: the workers that a function of the user's runs in; their time limit counts.
        missing: is told how many attempts have no feedback, by reason.

    Raises:
        ValueError: a name that `resolve` refuses.
    """
    if isinstance(source, str):
        source = resolve(source)
    attempts = [group.completions(renderer) for group in groups]
    rewards = [group.rewards for group in groups]
    said = (
        await _ask_function(source.value, attempts, rewards, pool)
        if source.kind == "function"
        else [_say(source, *one) for one in zip(attempts, rewards, strict=True)]
    )
    if missing is not None:
        missing.update(one.reason for group in said for one in group if isinstance(one, Failed))
    return [[None if isinstance(one, Failed) else one for one in group] for group in said]


def verdict_to_come(source: FeedbackSource, example: Example, *, longest: bool) -> str:
    """What the verifier will say of an attempt that is not there yet: a plain wrong one, or at its longest.

    Of what it reads in the attempt and quotes, one digit stands here.
    """
    attempt = Completion(prompt=(), text="0", token_count=1, finished=not longest, example=example)
    said = _verdict(source, attempt, _LONG_REWARD if longest else 0.0)
    assert isinstance(said, str), "an attempt with a reward has a verdict"
    return said


_LONG_REWARD = 1.23e-123
"""No reward takes more characters in a verdict."""


def _say(source: FeedbackSource, attempts: Sequence[Completion], rewards: Sequence[float | None]) -> list[str | Failed]:
    """Feedback on a group, for the sources that need no worker."""
    if source.kind == "sibling":
        return [_sibling(place, attempts, rewards, source.success) for place in range(len(attempts))]
    if source.kind == "verifier":
        return [_verdict(source, attempt, reward) for attempt, reward in zip(attempts, rewards, strict=True)]
    if source.kind == "constant":
        return [source.value for _ in attempts]
    absent = Failed(f"the example has no text in the field {source.value!r}")
    return [field_text(attempt.example, source.value) or absent for attempt in attempts]


def _sibling(
    place: int, attempts: Sequence[Completion], rewards: Sequence[float | None], success: float
) -> str | Failed:
    """The best of the other attempts that succeeded; of equals one that ended by itself, then the first."""
    others = [
        (reward, attempt.finished, -other)
        for other, (attempt, reward) in enumerate(zip(attempts, rewards, strict=True))
        if other != place and reward is not None and reward >= success and attempt.text.strip()
    ]
    if not others:
        return Failed("no other attempt of the group succeeded")
    return SIBLING_INTRODUCTION + attempts[-max(others)[2]].text


def _verdict(source: FeedbackSource, attempt: Completion, reward: float | None) -> str | Failed:
    if reward is None:
        return Failed("the attempt could not be scored")
    sentences = [f"{_what_was_read(source.reward, attempt)}: it is {_in_words(reward, source.success)}."]
    if not attempt.finished:
        sentences.append("It did not come to an end within its limit of length.")
    if source.reveal and attempt.example.answer is not None:
        sentences.append(f"The right answer is {attempt.example.answer}.")
    return " ".join(sentences)


def _in_words(reward: float, success: float) -> str:
    if reward >= success:
        return "right"
    return f"only partly right, and scored {reward:.3g} where {success:g} is needed" if reward > 0 else "wrong"


def _what_was_read(reward: RewardTerm | None, attempt: Completion) -> str:
    """How the grader came to its answer, where it is known; a user's function keeps that to itself."""
    if reward is not None and reward.function == "number":
        number = last_number(attempt.text)
        if number is None:
            return "No number was found in the attempt"
        return f"The last number in the attempt, {number}, was read as its answer"
    if reward is not None and reward.function == "exact":
        return "The whole attempt was read as its answer"
    return "The attempt was graded"


async def _ask_function(
    name: str, attempts: Sequence[Sequence[Completion]], rewards: Sequence[Sequence[float | None]], pool: RewardPool
) -> list[list[str | Failed]]:
    jobs = [
        Job(name, {"reward": reward}, attempt)
        for group, group_rewards in zip(attempts, rewards, strict=True)
        for attempt, reward in zip(group, group_rewards, strict=True)
    ]
    said = iter(await pool.texts(jobs))
    return [[_or_nothing(next(said), name) for _ in group] for group in attempts]


def _or_nothing(said: str | Failed | None, name: str) -> str | Failed:
    if isinstance(said, Failed):
        return Failed(f"{name}: {said.reason}")
    if said is not None and len(said) > MOST_CHARACTERS:
        return Failed(f"{name}: said more than {MOST_CHARACTERS:,} characters")
    return said if said and said.strip() else Failed(f"{name}: {NOTHING_TO_SAY}")


def _check_function(name: str) -> None:
    try:
        signature = inspect.signature(load_function(name))
    except Exception as error:  # a module that is imported may raise anything
        raise ValueError(f"feedback {name!r} cannot be imported: {told(error)}") from keyless(error)
    try:
        signature.bind(None, reward=None)
    except TypeError as error:
        raise ValueError(f"feedback {name!r} is called as f(completion, reward=…): {error}") from None
