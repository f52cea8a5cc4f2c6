"""`whitney algorithms`: what there is, what each sends, what it needs and what refuses it."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from algorithms.registry import ALGORITHMS, Algorithm, algorithm
from cli.failures import UsageError

PAGES = Path(__file__).resolve().parent.parent / "docs" / "algorithms"
OPTIONS = PAGES / "options.json"
"""Written by `cli.algorithm_pages`: to ask the configurations themselves would be to import Prefect."""

ROOMY = 130
"""Columns of a terminal from which on the table has room for all there is to say."""

LEGEND = "P prompts (or pairs) a cycle, G completions of each, K optimizer steps."


def algorithms(
    name: str | None = None,
    /,
    *,
    compare: Annotated[list[str] | None, Parameter(consume_multiple=True, negative="")] = None,
    start: float | None = None,
    compute: Annotated[list[float] | None, Parameter(consume_multiple=True, negative="")] = None,
    target: float | None = None,
    svg: Path | None = None,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Which algorithms there are: contract, operations, losses by provider, extra runs, what refuses them.

    Parameters
    ----------
    name
        Show one algorithm's page instead: its maths, its loop, its options.
    compare
        Show these side by side: what they keep in memory, typical settings, published scaling, references.
    start
        With --compare: the reward that the curves begin at, 0.2 by default; it was not published.
    compute
        With --compare: GB200 hours at which the curves are read, 1000 3000 10000 by default.
    target
        With --compare: a reward, to be told the compute that each curve takes to it.
    svg
        With --compare: a file to draw the curves in, NAME.svg.
    as_json
        Print JSON: a list of objects, or the one object that is named, or the comparison.
    """
    if compare is not None:
        return _compare([name, *compare] if name else compare, start, compute, target, svg, as_json=as_json)
    given = {"--start": start, "--compute": compute, "--target": target, "--svg": svg}
    if without := [option for option, value in given.items() if value is not None]:
        raise UsageError(f"{', '.join(without)}: no effect without --compare; say --compare grpo cispo, for one")
    chosen = _chosen([name]) if name is not None else list(ALGORITHMS.values())
    if as_json:
        rows = described(chosen)
        print(json.dumps(rows[0] if name is not None else rows, indent=2, ensure_ascii=False))
    elif name is not None:
        _show_page(chosen[0])
    else:
        _show_table(chosen)
    return 0


def _chosen(names: list[str]) -> list[Algorithm]:
    try:
        return [algorithm(name) for name in dict.fromkeys(names)]
    except ValueError as error:
        raise UsageError(str(error)) from error


def _compare(
    names: list[str],
    start: float | None,
    compute: list[float] | None,
    target: float | None,
    svg: Path | None,
    *,
    as_json: bool,
) -> int:
    from cli.compare import show
    from cli.comparison import COMPUTE, START, Comparison

    if not names:
        raise UsageError("--compare: name the algorithms, grpo cispo for one")
    start = START if start is None else start
    show(Comparison(_chosen(names), start, compute or COMPUTE, target), as_json=as_json, svg=svg)
    return 0


def described(rows: list[Algorithm]) -> list[dict[str, Any]]:
    """The registry's rows as plain data, each with the options of its configuration and their defaults."""
    options = json.loads(OPTIONS.read_text(encoding="utf-8")) if OPTIONS.is_file() else {}
    return [
        {
            "name": row.name,
            "title": row.title,
            "contract": row.contract,
            "rollouts": row.rollouts,
            "operations": list(row.operations),
            "operations_per_cycle": row.operations_per_cycle,
            "losses": list(row.losses),
            "losses_by_provider": {provider: list(losses) for provider, losses in row.losses_by_provider.items()},
            "extra_runs": list(row.extra_runs),
            "refuses": list(row.refuses),
            "options": options.get(row.name),
            "paper": row.paper,
            "config": f"deployments/configs/{row.name}.toml",
        }
        for row in rows
    ]


def losses_in_words(row: Algorithm) -> str:
    """The losses by provider, providers that send the same ones together: "gspo (modal, local)"."""
    if not row.losses:
        return "what your function asks for"
    together: dict[tuple[str, ...], list[str]] = {}
    for provider, losses in row.losses_by_provider.items():
        together.setdefault(losses, []).append(provider)
    parts = []
    for losses, providers in together.items():
        optional = [loss for loss in losses if loss not in row.losses]
        shown = " + ".join(row.losses) + (f", optionally {', '.join(optional)}" if optional else "")
        parts += [shown if len(together) == 1 else f"{shown} ({', '.join(providers)})"] if losses else []
    return "; ".join(parts)


COLUMNS: dict[str, Callable[[Algorithm], str]] = {
    "contract": lambda row: row.contract,
    "losses": losses_in_words,
    "operations per cycle": lambda row: row.operations_per_cycle,
    "extra runs": lambda row: ", ".join(row.extra_runs),
    "refuses": lambda row: "\n".join(row.refuses),
}
"""The table's columns behind the name."""


def _show_table(rows: list[Algorithm]) -> None:
    """As wide as the terminal; in a narrow one, or a pipe, what one chooses by: the rest is on the page."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    width = shutil.get_terminal_size().columns  # COLUMNS, else the terminal's own, else 80
    columns = COLUMNS if width >= ROOMY else {title: COLUMNS[title] for title in ("contract", "refuses")}
    table = Table(show_lines=True)
    table.add_column("algorithm", no_wrap=True)
    for title in columns:
        table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(f"[bold]{escape(row.name)}[/]", *(escape(cell(row) or "–") for cell in columns.values()))
    Console(width=width).print(table)
    print(LEGEND if width >= ROOMY else f"Losses, operations and extra runs: on the page, or in {ROOMY} columns.")
    print("A refusal comes before any session. A page: whitney algorithms NAME.")
    print("A configuration to start from: whitney init NAME.")
    print("Several one after another: whitney init pipeline.")


def page_of(row: Algorithm) -> str:
    """An algorithm's page: the one in docs/, or made anew by an installation that has no documents."""
    path = PAGES / f"{row.name}.md"
    if path.is_file():
        return path.read_text(encoding="utf-8")
    from cli.algorithm_pages import page

    return page(row.name)


def _show_page(row: Algorithm) -> None:
    from rich.console import Console
    from rich.markdown import Markdown

    if sys.stdout.isatty():
        Console().print(Markdown(page_of(row)))
    else:
        print(page_of(row), end="")
