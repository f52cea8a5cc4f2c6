"""`whitney algorithms`: what there is, what each sends, what it needs and what refuses it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from algorithms.registry import ALGORITHMS, Algorithm, algorithm
from cli.failures import UsageError

PAGES = Path(__file__).resolve().parent.parent / "docs" / "algorithms"
OPTIONS = PAGES / "options.json"
"""Written by `cli.algorithm_pages`: to ask the configurations themselves would be to import Prefect."""

SUMMARY_WIDTH = 150
"""Columns of the table where there is no terminal to measure."""


def algorithms(
    name: str | None = None, /, *, as_json: Annotated[bool, Parameter(name="--json", negative="")] = False
) -> int:
    """Which algorithms there are: contract, operations, losses by provider, extra runs, what refuses them.

    Parameters
    ----------
    name
        Show one algorithm's page instead: its maths, its loop, its options.
    as_json
        Print JSON: a list of objects, or the one object that is named.
    """
    try:
        chosen = [algorithm(name)] if name is not None else list(ALGORITHMS.values())
    except ValueError as error:
        raise UsageError(str(error)) from error
    if as_json:
        rows = described(chosen)
        print(json.dumps(rows[0] if name is not None else rows, indent=2, ensure_ascii=False))
    elif name is not None:
        _show_page(chosen[0])
    else:
        _show_table(chosen)
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


def _show_table(rows: list[Algorithm]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(show_lines=True)
    for title in ("algorithm", "contract", "losses", "operations per cycle", "extra runs", "refuses"):
        table.add_column(title, overflow="fold", no_wrap=title == "algorithm")
    for row in rows:
        cells = (
            row.contract,
            losses_in_words(row),
            row.operations_per_cycle,
            ", ".join(row.extra_runs) or "–",
            "\n".join(row.refuses) or "–",
        )
        table.add_row(f"[bold]{escape(row.name)}[/]", *(escape(cell) for cell in cells))
    console = Console()
    Console(width=None if console.is_terminal else SUMMARY_WIDTH).print(table)
    print(
        "P prompts (or pairs) a cycle, G completions of each, K optimizer steps. A refusal comes before any session.\n"
        "One algorithm's page: whitney algorithms NAME. A configuration to start from: whitney init NAME."
    )


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
