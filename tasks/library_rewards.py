"""Rewards that a library computes: each behind an extra, and only ever called in a worker process.

Computer algebra hangs, eats memory and sets alarms. So the libraries are imported by the workers alone, when a function
is loaded and its first completion's time has not begun.
"""

from __future__ import annotations

import importlib
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

from tasks import reasoning_entries
from tasks.builtin_rewards import UnscorableError, reference_answer
from tasks.completion import Completion


def math_verify(completion: Completion) -> float:
    r"""1 if the reply's mathematical expression equals the answer's: 1/2 is 0.5 and \frac{2}{4} (math-verify).

    In the reply, what is no plain number must be boxed or stand in LaTeX's delimiters; in the answer it need not.
    """
    from math_verify import parse, verify  # noqa: PLC0415 - an extra, and slow to import

    # Without limits of its own: it would call what it gave up on wrong, where the pool's limit says that nobody knows.
    found = parse(completion.text, parsing_timeout=None)
    return float(verify(_reference_expression(reference_answer(completion)), found, timeout_seconds=None))


def reasoning_gym(completion: Completion, *, tag: str | None = None) -> float:
    """What the reasoning-gym task that made the example says of the reply: 1 if right, often a part of it if near.

    With `tag`, "answer" say, only what stands in the last <answer>…</answer> of the reply is scored, and a reply
    without one is worth 0. Without `tag` the whole reply is scored, and most tasks pay little for a right answer that
    stands in a sentence.
    """
    if reasoning_entries.FIELD not in completion.example.extra:
        raise UnscorableError("the example is no task of reasoning-gym")
    text = completion.text
    if tag is not None:
        tagged = re.findall(rf"<{re.escape(tag)}>(.*?)</{re.escape(tag)}>", text, re.DOTALL)
        if not tagged:
            return 0.0
        text = tagged[-1]
    return reasoning_entries.score_answer(text.strip(), completion.example)


@dataclass(frozen=True, slots=True)
class Library:
    """What a reward needs: a module to import, and the extra of this project that installs it."""

    module: str
    extra: str


LIBRARY_REWARDS: dict[str, Callable[..., float]] = {"math_verify": math_verify, "reasoning_gym": reasoning_gym}
LIBRARIES = {"math_verify": Library("math_verify", "math"), "reasoning_gym": Library("reasoning_gym", "reasoning")}


def check_installed(name: str) -> None:
    """Make sure that a reward's library is there, without importing it.

    Raises:
        ValueError: names the extra to install.
    """
    library = LIBRARIES.get(name)
    if library is not None and find_spec(library.module) is None:
        raise ValueError(
            f"reward {name!r} needs the extra {library.extra!r}: pip install 'whitney-pipelines[{library.extra}]'"
        )


def check_arguments(name: str, arguments: Mapping[str, Any]) -> None:
    """Raises ValueError for a tag that is no name."""
    tag = arguments.get("tag")
    if name == "reasoning_gym" and tag is not None and not (isinstance(tag, str) and re.fullmatch(r"\w+", tag)):
        raise ValueError(f"reward 'reasoning_gym': tag is {tag!r}, a name is needed, without < and >: answer")


def import_library(function: str) -> None:
    """In a worker: import what "module:function" needs, if it is one of these, before anybody counts the time."""
    module, _, name = function.partition(":")
    if module == __name__:
        importlib.import_module(LIBRARIES[name].module)
        logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns at every reply that it has no time limit


@lru_cache(maxsize=1024)
def _reference_expression(answer: str) -> Any:
    from math_verify import parse  # noqa: PLC0415 - an extra, and slow to import

    delimited = any(mark in answer for mark in ("$", "\\(", "\\[", "\\boxed"))
    expression = parse(answer if delimited else f"${answer}$", parsing_timeout=None)
    if all(isinstance(reading, str) for reading in expression):  # only the text that it could make nothing of
        raise UnscorableError("math-verify reads no expression in the example's answer")
    return expression
