"""`whitney plan`: what a configuration will cost, before anything is allocated."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from cli.failures import interruptible
from cli.plan_options import NOTHING_SAID, Reckoning
from cli.prefect_setup import configure

if TYPE_CHECKING:
    from flows.load_config import AnyConfig
    from flows.plan.plan import Plan


def plan(
    config: Path,
    other: Path | None = None,
    *,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
    reckoning: Annotated[Reckoning, Parameter(name="*")] = NOTHING_SAID,
    overrides: Annotated[tuple[str, ...], Parameter(name="--set", negative="")] = (),
    embedded: bool | None = None,
) -> int:
    """Show what a configuration will cost: operations, tokens, FLOPs, memory, time, money. Nothing is allocated.

    Everything that a run checks before its session is checked, against the live endpoint: what it serves, the losses
    its provider has, the weights to start from, whether the budget leaves anything useful. Data order is seeded, so
    prompts are counted exactly. How long completions will be is not known: at least one token, at most
    sampling.max_tokens; what is typical is assumed, and said above the table.

    Parameters
    ----------
    config
        TOML file, of an algorithm or a pipeline.
    other
        A second one, to stand beside the first: what differs is marked.
    as_json
        Print JSON, as docs/plan.schema.json describes it; a list where two files are named.
    overrides
        A field put over the file's, both files' where there are two, e.g. --set cycles=20; field=none takes it away;
        may be repeated.
    embedded
        Always, or never, start a gateway to ask.
    """
    configure(verbose=False)
    from cli.check_config import check_config
    from flows.load_config import load_config

    files = [path for path in (config, other) if path is not None]
    configs = [load_config(path, overrides) for path in files]
    for algorithm, loaded in configs:
        check_config(algorithm, loaded)
    plans = _made(configs, reckoning, embedded=embedded, quiet=as_json)
    if as_json:
        shown = [one.as_json() for one in plans]
        print(json.dumps(shown if other else shown[0], indent=2, ensure_ascii=False, allow_nan=False))
    else:
        _show(files, configs, plans)
    return 0


def _made(
    configs: Sequence[tuple[str, AnyConfig]], reckoning: Reckoning, *, embedded: bool | None, quiet: bool
) -> list[Plan]:
    """A plan of each, by one endpoint; `quiet`: its address goes to stderr, since JSON stands alone."""
    from rich.console import Console

    from cli.plan_made import endpoint_for, plan_of, terms_of
    from cli.terminal import sayer

    loaded = [config for _, config in configs]
    terms = terms_of(reckoning, loaded)
    with interruptible(), endpoint_for(loaded, embedded=embedded, say=sayer(Console(stderr=quiet))):
        return [asyncio.run(plan_of(*one, its_terms)) for one, its_terms in zip(configs, terms, strict=True)]


def _show(files: Sequence[Path], configs: Sequence[tuple[str, AnyConfig]], plans: Sequence[Plan]) -> None:
    """As wide as the terminal."""
    import shutil

    from rich.console import Console

    from cli.plan_compare import compared
    from cli.plan_view import shown

    console = Console(width=shutil.get_terminal_size().columns)  # COLUMNS, else the terminal's own, else 80
    for part in shown(plans[0]) if len(plans) == 1 else compared([str(path) for path in files], configs, plans):
        console.print(part, highlight=False)
    if all(one.assumptions.prices is None for one in plans):
        console.print("Money: fill in a price file (whitney init prices), then --prices FILE.", highlight=False)
    console.print("Nothing was allocated: no session, no operation.", highlight=False)
