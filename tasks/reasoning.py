"""reasoning-gym's procedural tasks as data: `[data] source = "reasoning-gym:TASK"`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

from algorithms.names import did_you_mean
from tasks.examples import DataError, Example, example, user
from tasks.python_process import command, environment
from tasks.reasoning_entries import FIELD, travelling, unpack

PREFIX = "reasoning-gym:"


def read_task(task: str, options: Mapping[str, Any]) -> list[Example]:
    """The entries of a task as examples, the same in every process; `size` is 500 and `seed` 0 unless `options` differ.

    Raises:
        DataError: the extra is not installed, there is no such task, or it refuses the options.
    """
    if find_spec("reasoning_gym") is None:
        raise DataError(f"{PREFIX}{task} needs the extra 'reasoning': pip install 'whitney-pipelines[reasoning]'")
    settings = {"size": 500, "seed": 0, **options}
    made = json.loads(_made(task, json.dumps(settings)))
    if "unknown" in made:
        hint = did_you_mean(task, made["unknown"])
        raise DataError(f"reasoning-gym has no task {task!r}: {hint}its documentation lists them")
    if "refused" in made:
        raise DataError(f"{PREFIX}{task} refused the options {dict(options)}: {made['refused']}")
    return [_example(task, settings, *entry) for entry in made["entries"]]


@lru_cache(maxsize=4)
def _made(task: str, settings: str) -> str:
    """What `tasks.reasoning_source` answers."""
    source = subprocess.run(
        command("tasks.reasoning_source", task, settings),
        env=environment(PYTHONHASHSEED="0"),
        capture_output=True,
        text=True,
        check=False,
    )
    if source.returncode:
        why = source.stderr.strip().rpartition("\n")[2] or f"exit status {source.returncode}"
        raise DataError(f"{PREFIX}{task} could not be made with {settings}: {why}")
    return source.stdout


def _example(task: str, options: Mapping[str, Any], question: str, answer: str | None, packed: Any) -> Example:
    # `metadata` is for people's reward functions to read; the task itself reads the packed one.
    plain = json.loads(json.dumps(unpack(packed)))
    return example(user(question), answer, extra={"metadata": plain, FIELD: travelling(task, options, packed)})
