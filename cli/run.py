"""`whitney run`: train what a configuration says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from cli.failures import interruptible
from cli.prefect_setup import configure


def run(
    config: Path,
    *,
    overrides: Annotated[tuple[str, ...], Parameter(name="--set", negative="")] = (),
    name: str | None = None,
    embedded: bool | None = None,
    verbose: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Train what a configuration says, in this process.

    Whitney is what WHITNEY_BASE_URL and WHITNEY_API_KEY name; else a gateway that runs on this machine; else one that
    lives as long as the run.

    Parameters
    ----------
    config
        TOML file; `whitney init grpo` writes one.
    overrides
        A field put over the file's, e.g. --set optimizer.learning_rate=1e-4; field=none takes it away; may be repeated.
    name
        Name of the run and its folder.
    embedded
        Always, or never, start a gateway for this run.
    verbose
        Show the log of Prefect's flow and task runs.
    """
    configure(verbose=verbose)
    from rich.console import Console

    from cli.endpoint import endpoint
    from cli.prefect_server import prefect_api
    from cli.terminal import sayer
    from cli.training import show_summary, train
    from flows.checks.prepare import check_inputs
    from flows.load_config import load_config

    if name is not None:
        overrides = (*overrides, f"name={json.dumps(name)}")
    algorithm, checked = load_config(config, overrides)
    check_inputs(algorithm, checked)  # before a gateway is started: a mistake is told in a moment
    console = Console()
    say = sayer(console)
    with interruptible(), prefect_api(say):
        if checked.credentials_block is not None:
            summary = train(algorithm, checked, console)
        else:
            with endpoint(checked.model.name, checked.model.provider, embedded=embedded, say=say):
                summary = train(algorithm, checked, console)
    show_summary(summary, console)
    return 0
