"""A process that calls users' reward functions, one at a time, until it is told to end or is killed.

Run as `python -m tasks.reward_worker`; `tasks.reward_pool` is the other end. Frames are a four-byte length and JSON:
`{"load": function}` → `{}`; `{"function", "arguments", "completion", "cpu_limit_s", "wants"}` → `{"score": number}` or,
where `wants` is "text", `{"text": text or null}`; and `{"failed": reason}` to any, with the `words` of an
error. A process of its own, rather than `multiprocessing`, because that would import the parent's main module, Prefect
and all, into every worker.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import math
import os
import resource
import signal
import struct
import sys
import textwrap
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from tasks.builtin_rewards import UnscorableError
from tasks.completion import Completion
from tasks.examples import Example
from tasks.library_rewards import import_library
from tasks.redaction import told
from tasks.user_modules import is_ours, search_working_directory

LENGTH = struct.Struct(">I")

# Beyond it sums of squares overflow, and a group's statistics with them.
LARGEST_SCORE = 1e30

LONGEST_WORDS = 300
"""Characters of an error's own text."""


def main() -> None:
    """Answer frames from standard input on standard output."""
    requests, answers = _take_over_standard_streams()
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    while header := requests.read(LENGTH.size):
        request = orjson.loads(requests.read(LENGTH.unpack(header)[0]))
        body = orjson.dumps(_answer(request))
        answers.write(LENGTH.pack(len(body)) + body)
        answers.flush()


def load_function(name: str) -> Callable[..., Any]:
    """Import "module:function", from the working directory too, which a console script does not search by itself.

    Raises:
        ValueError: there is no such function.
    """
    search_working_directory()
    module_name, _, attribute = name.partition(":")
    function = getattr(importlib.import_module(module_name), attribute, None)
    if not callable(function):
        rename = "; that is a module of this project: if yours has its name, rename it" if is_ours(module_name) else ""
        raise ValueError(f"module {module_name!r} has no function {attribute!r}{rename}")  # noqa: TRY004 - user's mistake
    return function  # type: ignore[no-any-return]  # callable() narrows Any to a callable of unknown result


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    try:
        if "load" in request:
            load_function(request["load"])
            import_library(request["load"])
            return {}
        _limit_cpu(request["cpu_limit_s"])
        value = _call(request)
        return _as_text(value) if request["wants"] == "text" else _as_score(value)
    except UnscorableError as error:
        return {"failed": str(error)}
    except BaseException as error:
        name = request.get("load") or request["function"]
        return {"failed": f"raised {type(error).__name__}{_place(error, name)}", "words": _words(error)}
    finally:
        _disarm_alarm()


def _call(request: dict[str, Any]) -> Any:
    fields = request["completion"]
    # A pair of preferences is scored as the example it is, without its two replies.
    known = {name: fields["example"][name] for name in Example.__dataclass_fields__}
    completion = Completion(**{**fields, "prompt": tuple(fields["prompt"]), "example": Example(**known)})
    value = load_function(request["function"])(completion, **request["arguments"])
    return asyncio.run(_awaited(value)) if inspect.isawaitable(value) else value


def _as_score(value: Any) -> dict[str, Any]:
    try:
        score = float(value)
    except (TypeError, ValueError):
        return {"failed": f"returned a {type(value).__name__}, not a number"}
    if not abs(score) <= LARGEST_SCORE:  # NaN too
        return {"failed": f"returned {score}"}
    return {"score": score}


def _as_text(value: Any) -> dict[str, Any]:
    if value is None or isinstance(value, str):
        return {"text": value}
    return {"failed": f"returned a {type(value).__name__}, not text"}


async def _awaited(value: Any) -> Any:
    return await value


def _place(error: BaseException, name: str) -> str:
    """Where it was raised: the line of the user's own module, where one was at work, not that of a library it calls."""
    frames = traceback.extract_tb(error.__traceback__)
    module = getattr(sys.modules.get(name.partition(":")[0]), "__file__", None)
    frame = next((one for one in reversed(frames) if one.filename == module), frames[-1] if frames else None)
    return f" at {Path(frame.filename).name}:{frame.lineno}" if frame else ""


def _words(error: BaseException) -> str:
    """What it says, which may quote anything: shown to people, and no part of the reason that is counted."""
    return textwrap.shorten(told(error).partition(": ")[2], LONGEST_WORDS, placeholder=" …")


def _take_over_standard_streams() -> tuple[BinaryIO, BinaryIO]:
    """Keep the pipes for frames alone: what a function prints goes to standard error, and it has no input to read."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    # A child that a function forks and that outlives the kill must not keep the pool waiting for the pipes to close.
    for pipe in (requests, answers):
        os.register_at_fork(after_in_child=partial(os.close, pipe.fileno()))
    return requests, answers


def _disarm_alarm() -> None:
    """Take back what a math grader leaves behind: its alarm would kill the next completion's scoring."""
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)


def _limit_cpu(seconds: float) -> None:
    """Have the kernel end this process if it computes on: the only help when its parent is gone and the GIL is held."""
    limit = math.ceil(time.process_time() + seconds) + 1
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def _end_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


if __name__ == "__main__":
    main()
