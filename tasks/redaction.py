"""Errors of a user's own code, without the key: such code can read it in the environment, and Prefect stores the text
of whatever a flow raises.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator

from pydantic import SecretStr

KEY_VARIABLE = "WHITNEY_API_KEY"

# A shorter "key" would be found by chance in an error's text, and cut holes into it.
SHORTEST_REDACTED = 8


def redact(text: str, *keys: SecretStr) -> str:
    """`text` with `[key]` for each of `keys`, and for the environment's, as they are and as `repr` writes them."""
    for form in _forms(keys):
        text = text.replace(form, "[key]")
    return text


def keyless(error: BaseException, *keys: SecretStr) -> BaseException:
    """`error` itself, unless it or what caused it quotes a key: then a RuntimeError that says the same without.

    The latter has neither the cause nor the frames of the former: Prefect stores what a traceback prints of them.
    """
    shown = "".join(traceback.format_exception(error)) + "".join(repr(vars(link)) for link in _chain(error))
    if not any(form in shown for form in _forms(keys)):
        return error
    return RuntimeError(told(error, *keys))


def told(error: BaseException, *keys: SecretStr) -> str:
    """What an error says, behind its type and without a key."""
    return f"{type(error).__name__}: {redact(str(error), *keys)}"


def _forms(keys: tuple[SecretStr, ...]) -> list[str]:
    plain = {key.get_secret_value() for key in keys} | {os.environ.get(KEY_VARIABLE, "").strip()}
    known = {key for key in plain if len(key) >= SHORTEST_REDACTED}
    return sorted(known | {repr(key)[1:-1] for key in known}, key=len, reverse=True)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
