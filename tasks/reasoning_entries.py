"""How an entry of a reasoning-gym task travels with its example, to be scored by the task that made it.

A task scores a reply against its entry, in which tuples and keys that are numbers count: with the lists that JSON would
make of them, some tasks call a right answer wrong. And some make another entry from the same seed in another process.
So the entry itself travels, packed so that nothing of it is lost. Standard library only, for the workers' sake.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from tasks.examples import Example

FIELD = "reasoning_gym"
"""Where an example's `extra` holds its task, the task's options, and the packed metadata of its entry."""

TUPLE, ITEMS = "(tuple)", "(items)"


def travelling(task: str, options: Mapping[str, Any], packed: Any) -> dict[str, Any]:
    """What an example's `extra` holds under `FIELD`; `packed` is the entry's metadata."""
    return {"task": task, "options": dict(options), "metadata": packed}


def score_answer(answer: str, item: Example) -> float:
    """What the task that made `item` says of an answer: 1 for a right one, and usually something for a near one.

    Raises:
        KeyError: no task made the example.
    """
    origin = item.extra[FIELD]
    entry = {
        "question": item.messages[-1]["content"],
        "answer": item.answer,
        "metadata": unpack(origin["metadata"]),
    }
    return float(dataset(origin["task"], origin["options"]).score_answer(answer, entry))


def dataset(task: str, options: Mapping[str, Any]) -> Any:
    """The task with these options; reasoning-gym's own object, which makes its entries when they are asked for."""
    return _dataset(task, json.dumps(options))


def pack(value: Any) -> Any:
    """As JSON can hold it, with tuples, and mappings whose keys are no text, told apart from lists and objects."""
    if isinstance(value, tuple):
        return {TUPLE: [pack(item) for item in value]}
    if isinstance(value, list):
        return [pack(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    if all(isinstance(key, str) for key in value) and value.keys() not in ({TUPLE}, {ITEMS}):
        return {key: pack(item) for key, item in value.items()}
    return {ITEMS: [[pack(key), pack(item)] for key, item in value.items()]}


def unpack(value: Any) -> Any:
    """The inverse of `pack`, after JSON."""
    if isinstance(value, list):
        return [unpack(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    if value.keys() == {TUPLE}:
        return tuple(unpack(item) for item in value[TUPLE])
    if value.keys() == {ITEMS}:
        return {unpack(key): unpack(item) for key, item in value[ITEMS]}
    return {key: unpack(item) for key, item in value.items()}


@lru_cache(maxsize=16)
def _dataset(task: str, options: str) -> Any:
    import reasoning_gym  # noqa: PLC0415 - an extra, and slow to import

    return reasoning_gym.create_dataset(task, **json.loads(options))
