"""Which errors are the user's to mend, and what an interrupt means."""

from __future__ import annotations

import errno
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from tasks.userinfo import told_without_userinfo

USER_MISTAKE = 2
INTERRUPTED = 130

SAYS_NOTHING = ("", "None")
LONGEST_CHAIN = 5


class UsageError(Exception):
    """The command cannot do what it was asked; the message says what to change. Nothing is left behind."""


class CommandFailedError(Exception):
    """Something went wrong that is not the user's doing; the message says where to look."""


class RunFailedError(CommandFailedError):
    """A run was under way and failed; its session has been closed."""


def in_words(error: BaseException) -> str:
    """What the error says, less a password in an address; where it says nothing, what it is and what it came from."""
    words: list[str] = []
    cause: BaseException | None = error
    while cause is not None and len(words) < LONGEST_CHAIN:
        said = str(cause)
        if said not in SAYS_NOTHING:
            words.append(f"{type(cause).__name__}: {said}" if words else said)
            break
        words.append(type(cause).__name__)
        cause = cause.__cause__ or cause.__context__
    return told_without_userinfo(", from ".join(words))


def is_user_mistake(error: BaseException) -> bool:
    """Whether the error's message is all that its reader needs: configuration, data, model, endpoint, key.

    The classes are imported here, once there is an error: a command that has not failed need not wait for them.
    """
    from flows.load_config import ConfigError
    from models.errors import ModelError
    from tasks.examples import DataError
    from tasks.rendering import RenderingError
    from whitney.errors import ConfigurationError, ConnectionFailedError, UnauthorizedError

    mistakes = (
        UsageError,
        ConfigError,
        DataError,
        ModelError,
        RenderingError,
        ConfigurationError,
        ConnectionFailedError,
        UnauthorizedError,
    )
    return isinstance(error, mistakes)


def of_the_disk(error: Exception) -> str | None:
    """What to say of a folder or an output that cannot be written to, or has no room; None of any other error."""
    closed_or_full = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT)
    if not isinstance(error, OSError) or error.errno not in closed_or_full:
        return None
    if not error.filename:  # it had been opened already: a file, or what the command prints to
        return f"what is printed, or a file, cannot be written: {error.strerror}; make room for it"
    return f"{error.filename}: {error.strerror}; work in a folder that can be written to and has room"


@contextmanager
def interruptible() -> Iterator[None]:
    """Take SIGTERM for Ctrl-C, and hear Ctrl-C even when started with it ignored (`whitney run … &` in a script).

    So that a session is closed whoever ends the process, short of SIGKILL.
    """

    def as_interrupt(number: int, frame: FrameType | None) -> None:
        signal.raise_signal(signal.SIGINT)

    former = {
        signal.SIGINT: signal.signal(signal.SIGINT, signal.default_int_handler),
        signal.SIGTERM: signal.signal(signal.SIGTERM, as_interrupt),
    }
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
