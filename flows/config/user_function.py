"""A user's `build_loss`, imported by its name and tried for its shape before anything is allocated."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

from algorithms import NoGradientError
from flows.config.sections import ConfigError
from tasks.redaction import keyless, told
from tasks.reward_worker import load_function

BuildLoss = Callable[[dict[str, Any], int, dict[str, Any], Any], Any]
"""`build_loss(sample, cycle, request, ctx)`; a payload, or an awaitable of one."""

OWN = "algorithms."
"""Begins the modules whose `build_loss` goes by the `advantages` beside it."""


def load_build_loss(name: str) -> BuildLoss:
    """Import "module:function" and make sure that it takes the contract's four arguments.

    Raises:
        ConfigError: it cannot be imported, or called so.
    """
    try:
        function: BuildLoss = load_function(name)
        inspect.signature(function).bind({}, 0, {}, None)
    except (Exception, SystemExit) as error:  # a module that is imported may raise anything
        raise ConfigError(
            f"build_loss = {name!r}: {told(error)}; it must be a module:function called as "
            "build_loss(sample, cycle, request, ctx)"
        ) from keyless(error)
    return function


def require_group(function: BuildLoss, group_size: int) -> None:
    """Where it is one of this project's own, make sure that its advantages are defined for so many completions.

    Raises:
        ConfigError: they are not: each would be drawn, and paid for, before it is said.
    """
    module = sys.modules.get(getattr(function, "__module__", ""))
    advantages = getattr(module, "advantages", None)
    if module is None or not module.__name__.startswith(OWN) or advantages is None:
        return
    try:
        advantages([float(place) for place in range(group_size)], [1] * group_size)
    except NoGradientError:  # that is for rewards to say
        return
    except ValueError as error:
        raise ConfigError(
            f"group_size = {group_size}: build_loss is that of {module.__name__}, and {error}; take 2 or more"
        ) from error
