"""A plan as a person reads it: what it assumes, tables that fit the terminal, examples, warnings, notes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cli.fitting import Fitting, plain_table
from cli.plan_examples import examples
from cli.plan_numbers import Row, bytes_told, rows
from cli.plan_words import completions_told
from flows.plan.plan import Plan

SPAN = ("at least", "typically", "at most")
MEMORY = ("weights", "adapter", "KV", "backward", "process", "all")
"""KV are keys and values, "backward" the activations of a backward pass."""
ASSUMED, WARNING = "bold cyan", "bold yellow"


def shown(plan: Plan) -> Iterator[RenderableType]:
    """A whole plan; of a pipeline every stage's, then the sum."""
    for name, stage in plan.stages.items():
        yield Text(f"stage {name}", style="bold reverse")
        yield from shown(stage)
    yield Text(plan.title, style="bold")
    if assumed := completions_told(plan.assumptions):
        yield Text(assumed, style=ASSUMED)
    yield from (Text(f"Warning: {warning}", style=WARNING) for warning in plan.warnings)
    yield _quantities(plan)
    if plan.models:
        yield _memory(plan)
    yield from examples(plan)
    yield from (noted("·", note) for note in plan.notes)
    yield ""


def noted(mark: str, text: str) -> RenderableType:
    """A note, its further lines under its first."""
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(mark, Text(text))
    return Padding(grid, (0, 0, 0, 1))


def _quantities(plan: Plan) -> RenderableType:
    """Operations, tokens, FLOPs, time and money; in a narrow terminal with fewer columns, or a line for each value."""
    found = [row for row in rows(plan) if not (row.lasts and plan.models)]  # they have a table of their own
    cycles = ("once", "a cycle") if plan.per_cycle else ()
    columns = [(*cycles, *SPAN), SPAN, SPAN[1:]]
    return Fitting([*(_table(plan, found, titles) for titles in dict.fromkeys(columns)), _row_by_row(plan, found)])


def _table(plan: Plan, found: Sequence[Row], titles: Sequence[str]) -> Table:
    table = plain_table()
    table.add_column(_cycles(plan), no_wrap=True)
    for title in titles:
        table.add_column(title, justify="right", no_wrap=True)
    group = ""
    for row in found:
        if group not in ("", row.group):
            table.add_section()
        group = row.group
        cells = _cells(plan, row)
        style = "bold" if row.total or row.group == "compute" else ""
        table.add_row(row.name, *(cells[title] for title in titles), style=style)
    if plan.once and "once" in titles:
        table.caption = f"once: {plan.once}; typically = once + {plan.cycles:,} × a cycle"
        table.caption_justify = "left"
    return table


def _row_by_row(plan: Plan, found: Sequence[Row]) -> Table:
    """For terminals that are too narrow for any table."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    for row in found:
        table.add_row(Text(row.name, style="bold"))
        for title, cell in _cells(plan, row).items():
            if cell:
                table.add_row(f"  {title}", cell)
    return table


def _cells(plan: Plan, row: Row) -> dict[str, str]:
    values = ["not known"] * 3 if row.whole is None else [row.told(value) for value in row.whole.values]
    cycles = {"once": row.once(plan.cycles), "a cycle": row.in_cycle()} if plan.per_cycle else {}
    return {**cycles, **dict(zip(SPAN, values, strict=True))}


def _cycles(plan: Plan) -> str:
    return f"{plan.cycles:,} cycle{'' if plan.cycles == 1 else 's'}"


def _memory(plan: Plan) -> RenderableType:
    """What each model holds, and all of them; narrow: a column for each model."""
    models = dict(plan.models)
    if len(models) > 1 and plan.memory:
        models["all models"] = plan.memory
    parts = {
        name: (held.weights, held.adapter_and_optimizer, held.kv_cache, held.activations, held.process, held.total)
        for name, held in models.items()
    }
    across, down = plain_table(), plain_table()
    across.add_column("memory at its peak")
    down.add_column("memory at its peak", no_wrap=True)
    for title in MEMORY:
        across.add_column(title, justify="right", no_wrap=True)
    for name in parts:
        down.add_column(name, justify="right", overflow="fold")
    for name, held in parts.items():
        across.add_row(name, *map(bytes_told, held))
    for title, values in zip(MEMORY, zip(*parts.values(), strict=True), strict=True):
        down.add_row(title, *map(bytes_told, values), style="bold" if title == "all" else "")
    return Fitting([across, down])
