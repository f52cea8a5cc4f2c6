"""Two plans side by side: what differs in the configurations, and what that comes to."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cli.plan_numbers import Row, rows
from cli.plan_view import plain_table
from flows.checks.drift import changes
from flows.checks.plan import Plan
from flows.load_config import AnyConfig

VALUE_SHOWN = 34
DIFFERENT = "≠"


def compared(
    names: Sequence[str], configs: Sequence[tuple[str, AnyConfig]], plans: Sequence[Plan]
) -> Iterator[RenderableType]:
    """Both, the differences marked; `names` are the files'."""
    for place, (name, plan) in enumerate(zip(names, plans, strict=True), 1):
        yield Text(f"{place}: {name}: {plan.title}", style="bold")
    yield from _settings(configs)
    yield _costs(plans)
    for note in dict.fromkeys(note for plan in plans for note in plan.notes):
        whose = ", ".join(str(place) for place, plan in enumerate(plans, 1) if note in plan.notes)
        yield Padding(Text(f"{whose}: {note}"), (0, 0, 0, 1))
    yield ""


def _settings(configs: Sequence[tuple[str, AnyConfig]]) -> Iterator[RenderableType]:
    """Fields that differ; what has no effect on what is trained is left out."""
    before, now = ({"algorithm": name, "config": one.model_dump(mode="json")} for name, one in configs)
    found = {path.removeprefix("config."): values for path, values in changes(before, now).items()}
    only = [[path for path, values in found.items() if values[1 - place] is None] for place in range(2)]
    if configs[0][0] == configs[1][0]:  # the same fields: what one lacks is not set there
        only = [[], []]
    shared = {path: values for path, values in found.items() if path not in (*only[0], *only[1])}
    if not found:
        yield Text("The two configurations train the same.")
    if shared:
        table = plain_table()
        for title in ("what differs", "1", "2"):
            table.add_column(title, overflow="fold")
        for path, values in shared.items():
            table.add_row(path, *(_short(value) for value in values))
        yield table
    for place, paths in enumerate(only, 1):
        if paths:
            yield Text(f"Only {place} has: {', '.join(paths)}")


def _short(value: object) -> str:
    return textwrap.shorten("–" if value is None else str(value), VALUE_SHOWN, placeholder="…")


def _costs(plans: Sequence[Plan]) -> Table:
    """Typical values, and how many times as much the second takes."""
    table = plain_table()
    table.add_column("typically", no_wrap=True)
    for title in ("1", "2", "2 ÷ 1", ""):
        table.add_column(title, justify="right", no_wrap=True)
    first, second = ({(row.group, row.name): row for row in rows(plan)} for plan in plans)
    group = ""
    groups = list(dict.fromkeys(group for group, _ in first))
    for key in sorted(dict.fromkeys((*first, *second)), key=lambda key: groups.index(key[0])):
        if group not in ("", key[0]):
            table.add_section()
        group = key[0]
        table.add_row(key[1], *_beside(first.get(key), second.get(key)))
    return table


def _beside(one: Row | None, other: Row | None) -> list[str]:
    """Two values, their ratio, and a mark where they differ; a dash where there is none."""
    values = [row.whole.typical if row and row.whole else None for row in (one, other)]
    told = next(row.told for row in (one, other) if row)
    cells = ["–" if value is None else told(value) for value in values]
    if cells[0] == cells[1]:
        return [*cells, "", ""]
    first, second = values
    return [*cells, f"{second / first:.2f}" if first and second is not None else "", DIFFERENT]
