"""A user's `build_loss`, imported by its name and tried for its shape before anything is allocated."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from flows.config.sections import ConfigError
from tasks.redaction import keyless, told
from tasks.reward_worker import load_function

BuildLoss = Callable[[dict[str, Any], int, dict[str, Any], Any], Any]
"""`build_loss(sample, cycle, request, ctx)`; a payload, or an awaitable of one."""


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
