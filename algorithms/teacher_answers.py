"""What a teacher said about a completion, cut out of its answer about prompt and completion together.

Some servers begin their lists with a null for the first token, which nothing predicts, and some leave it out: counted
from the end, both are alike, and how long the teacher's own prompt was does not matter. So the *last* n entries are the
completion's, whatever stands before them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from algorithms.reasons import EMPTY, NO_TEACHER

TopK = Sequence[Sequence[Any]]
"""One position's `[[token, logprob], …]`, at most K of them."""


def completion_logprobs(logprobs: Sequence[float | None], completion_length: int) -> list[float]:
    """The log-probs of the n = `completion_length` tokens of a completion, from a `logprobs` answer.

    Raises:
        ValueError: n below 1, fewer than n entries, or one among the last n that is null or not finite.
    """
    start = _completion_start("log-probs", len(logprobs), completion_length)
    picked: list[float] = []
    for position, logprob in enumerate(logprobs[start:], start):
        if logprob is None or not math.isfinite(logprob):
            raise ValueError(f"log-prob {position} of {len(logprobs)} is {logprob}: every completion token needs one")
        picked.append(float(logprob))
    return picked


def completion_topk(rows: Sequence[TopK | None], completion_length: int) -> list[TopK]:
    """The rows of a completion's n tokens, from `topk_prompt_logprobs` or the `topk` of a `logprobs` answer.

    Raises:
        ValueError: n below 1, fewer than n rows, or one among the last n that is null or empty.
    """
    start = _completion_start("top-K rows", len(rows), completion_length)
    picked: list[TopK] = []
    for position, row in enumerate(rows[start:], start):
        if not row:
            raise ValueError(f"top-K row {position} of {len(rows)} is {row}: every completion token needs one")
        picked.append(row)
    return picked


def unusable(sequence: Mapping[str, Any], field: str) -> str | None:
    """Why a sampled completion cannot be distilled: "empty_completion", or "no_teacher" without its `field`."""
    if not sequence["tokens"]:
        return EMPTY
    return NO_TEACHER if sequence.get(field) is None else None


def _completion_start(what: str, entries: int, completion_length: int) -> int:
    if completion_length <= 0:
        raise ValueError(f"completion_length is {completion_length}: a completion has at least one token")
    if entries < completion_length:
        raise ValueError(
            f"the answer holds {entries} {what} for a completion of {completion_length} tokens: "
            "ask about prompt and completion as one input"
        )
    return entries - completion_length
