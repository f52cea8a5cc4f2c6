"""Tables that never cut a number: of several forms of one table, the first that the terminal has room for."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table

WIDE = 10_000
"""More columns than any table has: what it would take if it had the room."""


class Fitting:
    """The first of some tables that fits; the last one, where none does."""

    def __init__(self, tables: Sequence[Table]) -> None:
        self._tables = tables

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Rich's way of asking."""
        room = options.update(width=WIDE, max_width=WIDE)
        fitting = (one for one in self._tables if Measurement.get(console, room, one).maximum <= options.max_width)
        yield next(fitting, self._tables[-1])


def plain_table() -> Table:
    """A table of few lines, for a terminal or a file."""
    return Table(box=SIMPLE, padding=(0, 0, 0, 1), pad_edge=False)
