"""What a Retry knows a finished subflow by: its flow's name and the order of call, whatever has become of the code.

Prefect 3.9.1 finds the former run of a subflow by a key that holds a hash of the function's code, and that hash changes
with the lines above it and with Python's version. So after an update of this project, or of nothing but a comment, a
Retry would find none of the blocks that are finished: all would be trained, and billed, again. (Seen: a stage that was
finished was trained a second time because a file had been edited between two attempts.)

Prefect has a way for a wrapper to say what it stands for, `__prefect_task_source__`. What is named here stands for its
flow's name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class _Identity:
    """What Prefect asks a function for when it makes the key: a name, and code to hash. Both are the flow's name.

    Whoever resolves the function's annotations looks for its globals here.
    """

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.__qualname__ = name
        self.__code__ = name
        self.__globals__ = getattr(function, "__globals__", {})


def known_as(name: str, function: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
    """The function, as a subflow that is found again by `name`."""

    @wraps(function)
    async def known(*args: P.args, **kwargs: P.kwargs) -> R:
        return await function(*args, **kwargs)

    identity: Any = _Identity(name, inspect.unwrap(function))
    known.__signature__ = inspect.signature(function)  # type: ignore[attr-defined] # functions take any attribute
    known.__wrapped__ = identity
    known.__prefect_task_source__ = identity  # type: ignore[attr-defined] # as above
    return known
