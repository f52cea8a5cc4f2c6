"""One way to say a line: whole, without markup, wherever it goes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from rich.console import Console

Say = Callable[[str], None]


def sayer(console: Console) -> Say:
    """A function that prints a line as it is: paths and ids are not coloured, wrapped or read as markup.

    Where nobody can read it any more (a closed terminal, a closed pipe) it is lost: what runs is worth more.
    """

    def say(line: str) -> None:
        with suppress(OSError):
            console.print(line, markup=False, highlight=False, soft_wrap=True)

    return say
