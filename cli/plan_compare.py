"""Two plans side by side: what differs in the configurations, and what that comes to."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from cli.fitting import Fitting, plain_table
from cli.plan_numbers import Row, place_in_a_run, rows
from cli.plan_view import ASSUMED, WARNING, noted
from cli.plan_words import completions_told
from flows.checks.drift import changes
from flows.load_config import AnyConfig
from flows.plan.plan import Plan

VALUE_SHOWN = 34
DIFFERENT = "≠"


def compared(
    names: Sequence[str], configs: Sequence[tuple[str, AnyConfig]], plans: Sequence[Plan]
) -> Iterator[RenderableType]:
    """Both, the differences marked; `names` are the files'."""
    for place, (name, plan) in enumerate(zip(names, plans, strict=True), 1):
        yield Text(f"{place}: {name}: {plan.title}", style="bold")
        for whose, part in _parts(str(place), plan):
            if assumed := completions_told(part.assumptions):
                yield Text(f"{whose}: {assumed}", style=ASSUMED)
            yield from (Text(f"{whose}: Warning: {warning}", style=WARNING) for warning in part.warnings)
    yield from _settings(configs)
    yield _costs(plans)
    for note in dict.fromkeys(note for plan in plans for _, part in _parts("", plan) for note in part.notes):
        yield noted(f"{_whose(note, plans)}:", note)
    yield ""


def _whose(note: str, plans: Sequence[Plan]) -> str:
    parts = (part for place, plan in enumerate(plans, 1) for part in _parts(str(place), plan))
    return ", ".join(whose for whose, part in parts if note in part.notes)


def _parts(whose: str, plan: Plan) -> list[tuple[str, Plan]]:
    """A plan, and of a pipeline its stages; with what to call each."""
    return [*((f"{whose} {name}", stage) for name, stage in plan.stages.items()), (whose, plan)]


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


def _costs(plans: Sequence[Plan]) -> RenderableType:
    """Typical values with their range below, and how many times as much the second takes."""
    return Fitting([_table(plans, ranges=True), _table(plans, ranges=False), _row_by_row(plans)])


def _table(plans: Sequence[Plan], *, ranges: bool) -> Table:
    table = plain_table()
    table.add_column("typically\n(at least – at most)" if ranges else "typically", no_wrap=True)
    for title in ("1", "2", "2 ÷ 1"):
        table.add_column(title, justify="right", no_wrap=True)
    group = ""
    for pair in _pairs(plans):
        row = next(row for row in pair if row)
        if group not in ("", row.group):
            table.add_section()
        group = row.group
        cells = [_cell(one, ranges=ranges) for one in pair]
        table.add_row(row.name, *cells, _ratio(*pair), style="bold" if row.total else "")
    return table


def _row_by_row(plans: Sequence[Plan]) -> Table:
    """For terminals that are too narrow for any table."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    for pair in _pairs(plans):
        table.add_row(Text(next(row.name for row in pair if row), style="bold"))
        for place, row in enumerate(pair, 1):
            table.add_row(f"  {place}", _cell(row, ranges=False))
    return table


def _pairs(plans: Sequence[Plan]) -> list[tuple[Row | None, Row | None]]:
    """The rows of both, those of one name beside each other, in the order of a run and a group's sum last."""
    first, second = ({(row.group, row.name): row for row in rows(plan)} for plan in plans)
    found = [(first.get(key), second.get(key)) for key in dict.fromkeys((*first, *second))]
    groups = list(dict.fromkeys(row.group for row in (*first.values(), *second.values())))

    def place(pair: tuple[Row | None, Row | None]) -> tuple[int, bool, int]:
        row = next(row for row in pair if row)
        return groups.index(row.group), row.total, place_in_a_run(row.name)

    return sorted(found, key=place)


def _cell(row: Row | None, *, ranges: bool) -> str:
    """A value, and the range where it is not certain; a dash where there is none."""
    if row is None or row.whole is None:
        return "–"
    told = row.told(row.whole.typical)
    least, most = row.told(row.whole.least), row.told(row.whole.most)
    return told if not ranges or least == most else f"{told}\n({least} – {most})"


def _ratio(one: Row | None, other: Row | None) -> str:
    """How many times as much, and a mark where they differ."""
    if one is None or other is None or one.whole is None or other.whole is None:
        return DIFFERENT if one != other else ""
    first, second = one.whole.typical, other.whole.typical
    if one.told(first) == other.told(second):
        return ""
    return f"{second / first:.2f} {DIFFERENT}" if first else DIFFERENT
