"""`whitney algorithms --compare`: the table, as JSON, and the curves in a picture."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from algorithms.contract import Algorithm
from algorithms.scaling import H100_HOURS_PER_GB200_HOUR
from cli.catalogue_facts import NOTHING, SETTING, facts, hours
from cli.comparison import Comparison, compute_for
from cli.failures import UsageError

COLUMN = 20
"""Characters that an algorithm's column needs; those that find no room come in a table below."""


def show(comparison: Comparison, *, as_json: bool, svg: Path | None) -> None:
    """Print it, and draw the curves.

    Raises:
        UsageError: the picture cannot be drawn, or written.
    """
    if svg is not None:
        _write(svg, comparison.svg())
    if as_json:
        print(json.dumps(comparison.as_json(), indent=2, ensure_ascii=False))
        return
    _print_tables(comparison)
    print("Memory, K, G and notes are tinker-nomics's claims; we have not measured them.")
    if comparison.curves:
        print(f"Curves: the share of problems solved, 0 to 1: {SETTING}.")
        print("It ends at A, is half of the way there at Cmid, and B is how steep that is.")
        print(f"Where it starts, {comparison.start:g}, is not published: --start.")
        print("Other models and data have other curves: a run's own is in its report.")
        print(f"1 GB200 hour (h) is taken for {H100_HOURS_PER_GB200_HOUR} H100 hours.")
    print("Catalogue, formulas, references: docs/costs.md. Of your run: whitney plan.")
    if svg is not None:
        print(f"{svg}: the curves")


def _print_tables(comparison: Comparison) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    width = shutil.get_terminal_size().columns
    console = Console(width=width)
    at_once = max(1, width // COLUMN - 1)
    for first in range(0, len(comparison.rows), at_once):
        some = comparison.rows[first : first + at_once]
        told = [_told(comparison, row) for row in some]
        table = Table(show_lines=True)
        table.add_column("", no_wrap=True)
        for row in some:
            table.add_column(escape(row.name), overflow="fold")
        for label in dict.fromkeys(label for one in told for label in one):
            table.add_row(label, *(escape(one.get(label, NOTHING)) for one in told))
        console.print(table)


def _told(comparison: Comparison, row: Algorithm) -> dict[str, str]:
    """What the catalogue says, what the curve says at the hours that are asked about, and of the target."""
    told = facts(row)
    references = told.pop("references", NOTHING)
    if (curve := comparison.curves.get(row.name)) is not None:
        told |= {f"solved at {compute:,.0f} GB200 h": f"{curve.reward(compute):.3f}" for compute in comparison.compute}
        if (target := comparison.target) is not None:
            needed = compute_for(curve, target)
            never = f"never: it ends at {curve.ceiling:g}"
            told[f"compute to solve {target:g}"] = never if needed is None else hours(needed)
    return told | {"references": references}


def _write(path: Path, svg: str) -> None:
    if path.suffix != ".svg":
        raise UsageError(f"--svg {path}: what is written is an SVG, so its name ends in .svg (for a PNG: any browser)")
    try:
        path.write_text(svg, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--svg {path} cannot be written: {error.strerror}") from error
