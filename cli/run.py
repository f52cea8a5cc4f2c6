"""`whitney run`: train what a configuration says, or go on with a run that did not end well."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from cli.failures import UsageError, interruptible
from cli.prefect_setup import configure

if TYPE_CHECKING:
    from rich.console import Console


def run(
    config: Path | None = None,
    *,
    resume: Path | None = None,
    start: Annotated[str | None, Parameter(name="--from")] = None,
    of: Path | None = None,
    overrides: Annotated[tuple[str, ...], Parameter(name="--set", negative="")] = (),
    name: str | None = None,
    allow_drift: Annotated[bool, Parameter(negative="")] = False,
    embedded: bool | None = None,
    verbose: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Train what a configuration says, in this process; or go on with a run.

    Whitney is what WHITNEY_BASE_URL and WHITNEY_API_KEY name; else a gateway that runs here; else one that lives as
    long as the run. The first Ctrl-C closes what is open, the second ends it at once.

    Parameters
    ----------
    config
        TOML file; `whitney init grpo` writes one. With --resume or --of it may be left out: that run's is on record.
    resume
        Go on with a run that failed, was interrupted or killed: its folder, or the folder's name. Finished blocks stay.
    start
        Start a pipeline at this stage; those before it are taken from an earlier run of the pipeline.
    of
        With --from: that earlier run; default: the newest of the pipeline's name that has come as far.
    overrides
        A field put over the file's, e.g. --set optimizer.learning_rate=1e-4; field=none takes it away; may be repeated.
    name
        Name of the run and its folder.
    allow_drift
        With --resume: go on although configuration, data, template or model are not what the run began with. Not of a
        deployment's run.
    embedded
        Always, or never, start a gateway for this run.
    verbose
        Show the log of Prefect's flow and task runs.
    """
    _require_sense(config, resume, start=start, of=of, allow_drift=allow_drift)
    overrides = overrides if name is None else (*overrides, f"name={json.dumps(name)}")
    configure(verbose=verbose)
    from rich.console import Console

    from cli.resume import resume as go_on

    if resume is not None:
        go_on(resume, config, overrides, allow_drift=allow_drift, embedded=embedded, console=Console())
    else:
        _begin(config, overrides, start=start, of=of, embedded=embedded, console=Console())
    return 0


def _require_sense(
    config: Path | None, resume: Path | None, *, start: str | None, of: Path | None, allow_drift: bool
) -> None:
    """Raises UsageError for options that do not go together."""
    if config is None and resume is None and start is None:
        raise UsageError(
            "CONFIG is missing: whitney run CONFIG, or whitney run --resume RUN; `whitney run --help` says more"
        )
    if allow_drift and resume is None:
        raise UsageError("--allow-drift: only with --resume RUN; a new run has nothing to drift from")
    if start is not None and resume is not None:
        raise UsageError("--from starts a new run, --resume goes on with one at the stage it ended in: leave one out")
    if of is not None and start is None:
        raise UsageError("--of: only with --from STAGE, to say whose stages before it are taken")


def _begin(
    path: Path | None,
    overrides: tuple[str, ...],
    *,
    start: str | None,
    of: Path | None,
    embedded: bool | None,
    console: Console,
) -> None:
    from cli.check_config import check_config
    from cli.endpoint import endpoint, greet_named
    from cli.endpoint_again import endpoint_again
    from cli.prefect_api import prefect_api
    from cli.recorded_outcomes import recorded_config, recorded_outcomes
    from cli.run_data import Endpoints
    from cli.served_for import served_for
    from cli.summary import show_summary
    from cli.terminal import sayer
    from cli.training import train
    from flows.load_config import load_config

    algorithm, config = recorded_config(of, overrides) if path is None else load_config(path, overrides)
    earlier, outcomes = (None, []) if start is None else recorded_outcomes(config, start, of, embedded=embedded)
    check_config(algorithm, config)  # before a gateway is started: a mistake is told in a moment
    say = sayer(console)
    with interruptible(), ExitStack() as stack:
        prefect = stack.enter_context(prefect_api(say))
        whitney = None
        if config.credentials_block is None:
            models, provider = served_for(config)
            whitney = (
                stack.enter_context(endpoint(models, provider, embedded=embedded, say=say))
                if earlier is None
                else endpoint_again(stack, config, earlier.endpoints, say)
            )
        else:
            greet_named(config.credentials_block, say)
        summary = train(algorithm, config, console, Endpoints.of(prefect, whitney), outcomes)
        show_summary(summary, console)  # in here Prefect's address is known, and with it the run's page
