"""Errors and texts of a user's own code, without the key: such code can read it in the environment, and Prefect stores
what a flow raises, as text and pickled.
"""

from __future__ import annotations

import base64
import os
import re
import traceback
from collections.abc import Iterator

from pydantic import SecretStr

KEY_VARIABLE = "WHITNEY_API_KEY"

# A shorter "key" would be found by chance in an error's text, and cut holes into it.
SHORTEST_REDACTED = 8


def redact(text: str, *keys: SecretStr) -> str:
    """`text` with `[key]` for each of `keys` and for the environment's, as `repr` and JSON write them, too."""
    for pattern in _patterns(keys):
        text = pattern.sub("[key]", text)
    return text


def keyless(error: BaseException, *keys: SecretStr) -> BaseException:
    """`error` itself, unless it or what is behind it holds a key: then a RuntimeError that says the same without.

    The latter has neither the cause nor the frames of the former: Prefect stores what a traceback prints of them. An
    error that cannot be looked into, because its own `__repr__` fails, is taken for one that holds a key.
    """
    patterns = _patterns(keys)
    try:
        clean = not any(pattern.search(shown) for shown in _views(error) for pattern in patterns)
    except Exception:  # the user's __repr__ may raise anything
        clean = False
    return error if clean else RuntimeError(told(error, *keys).removeprefix("RuntimeError: "))


def told(error: BaseException, *keys: SecretStr) -> str:
    """What an error says, behind its type and without a key."""
    try:
        said = str(error)
    except Exception as failure:  # the user's __str__ may raise anything
        said = f"its text cannot be read, {type(failure).__name__}"
    return redact(f"{type(error).__name__}: {said}" if said else type(error).__name__, *keys)


def of_key(name: str) -> bool:
    """Whether an environment variable is the key's: its name is read in upper and lower case."""
    return name.upper() == KEY_VARIABLE


def _patterns(keys: tuple[SecretStr, ...]) -> list[re.Pattern[str]]:
    known = {key.get_secret_value() for key in keys}
    known |= {value.strip() for name, value in os.environ.items() if of_key(name)}
    return [_however_escaped(key) for key in sorted(known, key=len, reverse=True) if len(key) >= SHORTEST_REDACTED]


def _however_escaped(key: str) -> re.Pattern[str]:
    """Matches `key` after any rounds of `repr` or JSON, which put backslashes before quotes and backslashes."""
    escaped = re.sub(r"\\+|[^\\]", lambda found: _escaped(found[0]), key)
    return re.compile(escaped)


def _escaped(part: str) -> str:
    if part.startswith("\\"):
        return rf"\\{{{len(part)},}}"
    return rf"\\*{part}" if part in "'\"" else re.escape(part)


def _views(error: BaseException) -> Iterator[str]:
    """What can be stored of an error: what a traceback prints, what a repr shows, what a pickle holds."""
    yield "".join(traceback.format_exception(error))
    for link in _with_what_is_behind(error):
        yield f"{link!r} {link.args!r} {vars(link)!r}"
    yield _pickled(error)


def _pickled(error: BaseException) -> str:
    """As Prefect stores it; empty for what it cannot store. Some values, a request's headers, are in no repr."""
    from prefect.serializers import PickleSerializer  # noqa: PLC0415 - a worker imports this module, and never needs it

    try:
        return base64.decodebytes(PickleSerializer().dumps(error)).decode("latin-1")
    except Exception:  # the user's __reduce__ may raise anything
        return ""


def _with_what_is_behind(error: BaseException) -> Iterator[BaseException]:
    """`error`, what it was raised from or amidst, and the members of a group, each once."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        link = waiting.pop()
        if link is None or id(link) in seen:
            continue
        seen.add(id(link))
        yield link
        waiting += [link.__cause__, link.__context__]
        waiting += link.exceptions if isinstance(link, BaseExceptionGroup) else ()
