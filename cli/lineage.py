"""`whitney lineage`: the chain of states of a run, or behind one state, and what was paid for beyond it."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated

from cyclopts import Parameter

from cli.failures import CommandFailedError, UsageError
from cli.run_files import no_run_folder, run_folder


def lineage(run: str, *, as_json: Annotated[bool, Parameter(name="--json", negative="")] = False) -> int:
    """Print which state came from which, what each block cost, and what was billed beyond it; status 1 if it is broken.

    Of a run it checks that the chain is unbroken and that each cycle is in it exactly once, and compares what Whitney
    has billed each attempt with what blocks, evaluations and the export account for: the rest was done twice. Without
    an endpoint that knows the run the chain is printed, what its summary.json says was done twice, and that the bill is
    not known.

    Of a pipeline it does so stage by stage, and compares what each begins with and is taught by with what was left.

    Of a state it follows the parents that the endpoint has on record, back to the first, across those that have gone.

    Parameters
    ----------
    run
        Folder of the run, its name under runs/, or the id of a state.
    as_json
        Print JSON.
    """
    from cli.find_run import is_pipeline
    from cli.pipeline_lineage import PipelineLineage
    from cli.run_lineage import RunLineage

    folder = run_folder(run)
    if folder is None:
        return _of_state(run, as_json=as_json)
    found = PipelineLineage.read(folder) if is_pipeline(folder) else RunLineage.read(folder).with_bill()
    if as_json:
        print(json.dumps(found.as_json(), indent=2))
    else:
        found.show()
    return 1 if found.wrong else 0


def _of_state(state_id: str, *, as_json: bool) -> int:
    from cli import state_lineage
    from whitney.errors import ConfigurationError, InvalidRequestError, NotFoundError, UnauthorizedError, WhitneyError
    from whitney.settings import resolve_settings

    no_run = no_run_folder(state_id)
    try:
        settings = resolve_settings()
    except ConfigurationError as error:
        raise UsageError(f"{no_run}; and as the id of a state it cannot be looked up: {error}") from error
    try:
        found = asyncio.run(state_lineage.ancestry(settings, state_id))
    except (NotFoundError, InvalidRequestError, ValueError) as error:
        raise UsageError(f"{no_run}, and {settings.base_url} has no state of that id") from error
    except UnauthorizedError as error:
        raise UsageError(str(error)) from error
    except WhitneyError as error:
        raise CommandFailedError(f"{no_run}; and whether it is a state cannot be asked: {error}") from error
    if as_json:
        print(json.dumps(state_lineage.as_json(found), indent=2))
    else:
        state_lineage.show(found)
    return 0
