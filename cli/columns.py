"""Rows as aligned columns: ids are printed whole, whatever the terminal's width."""

from __future__ import annotations

from collections.abc import Sequence


def columns(head: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """The lines of a table, its head first; numbers stand right, with separators, and None is a dash."""
    table = [list(head), *([_text(cell) for cell in row] for row in rows)]
    numeric = [all(isinstance(cell, int) for cell in column) for column in zip(*rows, strict=True)] if rows else []
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    right = numeric or [False] * len(widths)
    return [
        "  ".join(
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in table
    ]


def _text(cell: object) -> str:
    if cell is None:
        return "–"
    return f"{cell:,}" if isinstance(cell, int) else str(cell)
