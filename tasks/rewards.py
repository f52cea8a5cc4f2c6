"""Rewards: what a completion is worth.

A reward is a weighted sum of terms. A term is a built-in (`exact`, `number`, `contains`, `regex`, `length`,
`soft_overlong`; with an extra `math_verify`, `reasoning_gym`) or a function of the user's, named "module:function".
Built-ins run here; a user's function or regular expression, and what a library computes, run in worker processes that
can be killed, because each of them may hang. Whatever goes wrong with one completion makes its reward None with a
counted reason, and leaves every other alone.
"""

from __future__ import annotations

import inspect
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

from algorithms.names import did_you_mean
from tasks import builtin_rewards, library_rewards, reasoning_entries
from tasks.builtin_rewards import UnscorableError
from tasks.completion import Completion
from tasks.examples import Example
from tasks.library_rewards import LIBRARY_REWARDS
from tasks.redaction import keyless, told
from tasks.reward_pool import Failed, Job, RewardPool
from tasks.reward_worker import LARGEST_SCORE, load_function

__all__ = [
    "BUILT_IN",
    "Completion",
    "Failures",
    "RewardPool",
    "RewardTerm",
    "Scores",
    "check_examples",
    "check_spec",
    "needs_answer",
    "score",
]

BUILT_IN: dict[str, Callable[..., float]] = {**builtin_rewards.BUILT_IN, **LIBRARY_REWARDS}

IN_A_WORKER = builtin_rewards.MAY_HANG | LIBRARY_REWARDS.keys()


@dataclass(frozen=True, slots=True)
class RewardTerm:
    """One term of a reward.

    Attributes:
        function: a built-in's name, or "module:function": called with a `Completion` and `arguments`, it returns a
            number, or an awaitable of one.
        weight: factor in the sum.
        finish_bonus: b in score × ((1 − b) + b × finished), for scores above 0: the share that is paid only when the
            completion ended by itself. It multiplies; a bonus that is added teaches to stop at once and say nothing.
        arguments: keyword arguments of the function.
    """

    function: str
    weight: float = 1.0
    finish_bonus: float = 0.0
    arguments: Mapping[str, Any] = field(default_factory=dict)


class Failures(Counter[str]):
    """Why completions have no reward: how often, by reason; `words` are those of the first error of each.

    Words are no part of a reason: each completion may be told of in others.
    """

    def __init__(self) -> None:
        super().__init__()
        self.words: dict[str, str] = {}

    def note(self, reason: str, words: str) -> None:
        """Count one."""
        self[reason] += 1
        if words:
            self.words.setdefault(reason, words)

    def add(self, other: Failures) -> None:
        """Count another batch's, too."""
        self.update(other)
        self.words = other.words | self.words

    def told(self) -> str:
        """For people: each reason, what the first error said, and how often."""
        words = {reason: f": {said}" for reason, said in self.words.items()}
        return ", ".join(f"{reason}{words.get(reason, '')} ({_often(count)})" for reason, count in self.most_common())


def _often(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


@dataclass(frozen=True, slots=True)
class Scores:
    """Rewards of a batch, in its order.

    `total` is None where a term could not be scored. `by_function` has each term's own scores, unweighted but with
    their finish bonus, under its function's name (a second term of one name is `name#2`).
    """

    total: list[float | None]
    by_function: dict[str, list[float | None]]
    failures: Failures


def check_spec(spec: Sequence[RewardTerm]) -> None:
    """Make sure that every term exists and can be called with its arguments. User's modules are imported.

    Raises:
        ValueError: names the term, what is wrong with it, and the near name of a misspelt built-in.
    """
    if not spec:
        raise ValueError("a reward needs at least one term")
    for term in spec:
        if not math.isfinite(term.weight):
            raise ValueError(f"reward {term.function!r}: weight is {term.weight}, it must be finite")
        if not 0 <= term.finish_bonus <= 1:
            raise ValueError(f"reward {term.function!r}: finish_bonus is {term.finish_bonus}, it must be in 0 … 1")
        _check_call(term, _resolve(term.function))
        builtin_rewards.check_arguments(term.function, term.arguments)
        library_rewards.check_arguments(term.function, term.arguments)
        library_rewards.check_installed(term.function)


def needs_answer(spec: Sequence[RewardTerm]) -> bool:
    """Whether a built-in term compares with the example's answer, so that data without answers cannot be scored."""
    return any(
        term.function == "math_verify" or builtin_rewards.compares_with_answer(term.function, term.arguments)
        for term in spec
    )


def check_examples(spec: Sequence[RewardTerm], examples: Sequence[Example]) -> None:
    """Make sure that examples hold what a built-in term needs beside an answer (for which see `needs_answer`).

    Raises:
        ValueError: names the term, how many examples it cannot score, and one of them.
    """
    others = [item for item in examples if reasoning_entries.FIELD not in item.extra]
    if others and any(term.function == "reasoning_gym" for term in spec):
        raise ValueError(
            f"reward 'reasoning_gym' scores replies to reasoning-gym's tasks, and {len(others)} of {len(examples)} "
            f"examples come from elsewhere, {others[0].id} for one: set data.source to reasoning-gym:TASK, or name "
            "another reward"
        )


async def score(
    completions: Sequence[Completion],
    spec: Sequence[RewardTerm],
    *,
    timeout_s: float = 30.0,
    workers: int = 2,
    pool: RewardPool | None = None,
) -> Scores:
    """Score a batch.

    Args:
        completions: what to score.
        spec: the terms to sum.
        timeout_s: hard limit in seconds for one call of a function that runs in a worker.
        workers: worker processes, started only if a term needs one.
        pool: an open pool to use rather than one for this batch alone; its limits count then.

    Raises:
        ValueError: a term that does not exist or cannot be called.
    """
    check_spec(spec)
    failures = Failures()
    by_function: dict[str, list[float | None]] = {}
    async with AsyncExitStack() as stack:
        if pool is None:
            pool = await stack.enter_async_context(RewardPool(workers=workers, timeout_s=timeout_s))
        for term in spec:
            outcomes = await _call(completions, term, pool)
            for outcome in outcomes:
                if isinstance(outcome, Failed):
                    failures.note(f"{term.function}: {outcome.reason}", outcome.words)
            by_function[_free_name(term.function, by_function)] = [
                _with_finish_bonus(outcome, completion, term)
                for outcome, completion in zip(outcomes, completions, strict=True)
            ]
    total = [_weighted_sum(spec, scores, failures) for scores in zip(*by_function.values(), strict=True)]
    return Scores(total, by_function, failures)


async def _call(completions: Sequence[Completion], term: RewardTerm, pool: RewardPool) -> list[float | Failed]:
    """One outcome per completion: a score, or the reason why there is none."""
    function = BUILT_IN.get(term.function)
    if function is not None and term.function not in IN_A_WORKER:
        return [_call_here(function, completion, term.arguments) for completion in completions]
    name = term.function if function is None else f"{function.__module__}:{function.__name__}"
    return await pool.run([Job(name, term.arguments, completion) for completion in completions])


def _call_here(function: Callable[..., float], completion: Completion, arguments: Mapping[str, Any]) -> float | Failed:
    try:
        return function(completion, **arguments)
    except UnscorableError as error:
        return Failed(str(error))


def _with_finish_bonus(outcome: float | Failed, completion: Completion, term: RewardTerm) -> float | None:
    if isinstance(outcome, Failed):
        return None
    unpaid = term.finish_bonus if outcome > 0 and not completion.finished else 0.0
    return outcome * (1.0 - unpaid)


def _weighted_sum(spec: Sequence[RewardTerm], scores: Sequence[float | None], failures: Counter[str]) -> float | None:
    scored = [term.weight * value for term, value in zip(spec, scores, strict=True) if value is not None]
    if len(scored) < len(spec):
        return None
    total = sum(scored)
    if abs(total) <= LARGEST_SCORE:  # NaN is not
        return total
    failures[f"the weighted sum is not within ±{LARGEST_SCORE:g}"] += 1
    return None


def _free_name(function: str, taken: Mapping[str, Any]) -> str:
    again = sum(name.split("#")[0] == function for name in taken)
    return f"{function}#{again + 1}" if again else function


def _check_call(term: RewardTerm, function: Callable[..., Any]) -> None:
    try:
        signature = inspect.signature(function)
    except ValueError:
        return  # a function written in C may have none; the call itself will tell
    try:
        signature.bind(None, **term.arguments)
    except TypeError as error:
        known = ", ".join(list(signature.parameters)[1:]) or "none"
        raise ValueError(
            f"reward {term.function!r} is called as f(completion, **arguments) with the arguments "
            f"{sorted(term.arguments)}: {error} (beside completion it takes {known}). The completion has .text, "
            ".finished, .token_count, .prompt and .example (.example.answer is the reference)"
        ) from None


def _resolve(name: str) -> Callable[..., Any]:
    if name in BUILT_IN:
        return BUILT_IN[name]
    if ":" not in name:
        hint = did_you_mean(name, BUILT_IN)
        raise ValueError(
            f"reward {name!r} is unknown: {hint}use {', '.join(BUILT_IN)}, or your own function as 'module:function'"
        )
    try:
        return load_function(name)
    except Exception as error:  # a module that is imported may raise anything
        raise ValueError(f"reward {name!r} cannot be imported: {told(error)}") from keyless(error)
