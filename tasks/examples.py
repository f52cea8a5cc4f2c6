"""One example: a conversation to answer, and what is known about the answer. Standard library only."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_encode = json.JSONEncoder(ensure_ascii=False).encode

Message = dict[str, str]
"""`{"role": "system" | "user" | "assistant", "content": text}`."""


class DataError(ValueError):
    """Data that cannot be used; the message names the file and line, or the setting, and what to do."""


@dataclass(frozen=True, slots=True)
class Example:
    """A prompt with its reference answer.

    `messages` end where the model is to speak. `extra` is whatever else the source says, for reward functions to read.
    `key` names what must not stand on both sides of a split: two examples with one key are one question. For 7 + 5 and
    5 + 7 it is the unordered pair; by default it is the conversation itself, white space apart.
    """

    id: str
    messages: tuple[Message, ...]
    answer: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    key: str = ""

    @property
    def replies(self) -> tuple[str, ...]:
        """The texts that may be trained as replies to the conversation."""
        return () if self.answer is None else (self.answer,)


@dataclass(frozen=True, slots=True)
class Preference(Example):
    """A prompt with two replies to it, of which the first is to be preferred.

    `answer` stays what it is elsewhere, a reference for reward functions; preferences need none.
    """

    chosen: str = ""
    rejected: str = ""

    @property
    def replies(self) -> tuple[str, ...]:
        """Both replies, the chosen one first."""
        return self.chosen, self.rejected


def example(
    messages: Sequence[Message],
    answer: str | None = None,
    *,
    id: str | None = None,
    extra: Mapping[str, Any] | None = None,
    key: str | None = None,
) -> Example:
    """An example whose missing `id` and `key` are derived from its conversation."""
    question = [[message["role"], " ".join(message["content"].split())] for message in messages]
    digest = hashlib.sha256(_encode(question).encode()).hexdigest()
    return Example(id or digest[:12], tuple(messages), answer, dict(extra or {}), key or digest)


def preference(item: Example, chosen: str, rejected: str) -> Preference:
    """An example, and the two replies to its prompt."""
    return Preference(item.id, item.messages, item.answer, item.extra, item.key, chosen, rejected)


def user(text: str) -> tuple[Message, ...]:
    """A conversation of one user message."""
    return ({"role": "user", "content": text},)


def require_answers(examples: Sequence[Example], which: str, why: str) -> None:
    """Refuse examples without an answer where one is needed.

    Raises:
        DataError: says how many of `which` have none, and `why` it matters.
    """
    without = sum(example.answer is None for example in examples)
    if without:
        raise DataError(f"{without} of {len(examples)} {which} have no `answer`, {why}")
