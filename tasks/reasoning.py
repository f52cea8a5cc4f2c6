"""reasoning-gym's procedural tasks as data: `[data] source = "reasoning-gym:TASK"`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from algorithms.names import did_you_mean
from tasks import reasoning_entries
from tasks.examples import DataError, Example, example, user

PREFIX = "reasoning-gym:"


def read_task(task: str, options: Mapping[str, Any]) -> list[Example]:
    """The entries of a task as examples; `size` is 500 and `seed` 0 unless `options` say otherwise.

    Raises:
        DataError: the extra is not installed, there is no such task, or it refuses the options.
    """
    try:
        from reasoning_gym import factory  # noqa: PLC0415 - an extra, and slow to import
    except ImportError:
        raise DataError(
            f"{PREFIX}{task} needs the extra 'reasoning': pip install 'whitney-pipelines[reasoning]'"
        ) from None
    if task not in factory.DATASETS:
        hint = did_you_mean(task, factory.DATASETS)
        raise DataError(f"reasoning-gym has no task {task!r}: {hint}its documentation lists them")
    settings = {"size": 500, "seed": 0, **options}
    try:
        return [_example(task, settings, entry) for entry in reasoning_entries.dataset(task, settings)]
    except (AssertionError, TypeError, ValueError) as error:  # what its tasks raise for options they refuse
        raise DataError(f"{PREFIX}{task} refused the options {dict(options)}: {error}") from error


def _example(task: str, options: Mapping[str, Any], entry: Mapping[str, Any]) -> Example:
    metadata = entry["metadata"]
    # `metadata` is for people's reward functions to read; the task itself reads the packed one.
    extra = {"metadata": metadata, reasoning_entries.FIELD: reasoning_entries.travelling(task, options, metadata)}
    return example(user(entry["question"]), entry["answer"], extra=_plain(extra))


def _plain(value: Mapping[str, Any]) -> dict[str, Any]:
    """As JSON would give it back, so that a reward function sees the same in this process and in a worker."""
    plain: dict[str, Any] = json.loads(json.dumps(value, default=str))
    return plain
