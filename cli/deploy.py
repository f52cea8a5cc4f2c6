"""`whitney deploy`: deployments, and what they need, on a Prefect server; run again, it changes only what differs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from cli.deploy_options import NO_OPTIONS, NO_WISHES, When, Wishes
from cli.failures import UsageError
from deployments.names import REAPER
from tasks.userinfo import without_userinfo

if TYPE_CHECKING:
    from deployments.prefect_file import Entry


def deploy(
    config: Path | None = None,
    *,
    overrides: Annotated[tuple[str, ...], Parameter(name="--set", negative="")] = (),
    when: Annotated[When, Parameter(name="*")] = NO_OPTIONS,
    wishes: Annotated[Wishes, Parameter(name="*")] = NO_WISHES,
) -> int:
    """Register deployments on the Prefect server: those of this project, or a configuration of yours.

    The server is the one that PREFECT_API_URL names, or that of `whitney up` in this folder. Runs will work in the
    folder where this command is given: `runs/`, data files and your own functions are looked for there.

    Schedules that train are made inactive, so that nothing is billed unasked: switch them on with --activate or in the
    UI. What is on stays on.

    Parameters
    ----------
    config
        TOML file of a training or a pipeline, checked as `whitney run` does; without it, what deployments/prefect.yaml
        names: the reaper, and examples of scheduled trainings.
    overrides
        A field put over the file's, e.g. --set cycles=3; may be repeated.
    """
    entries = _entries(config, overrides, when)
    from cli.deploy_changes import changes
    from cli.prefect_answers import is_up
    from cli.prefect_api import known_prefect

    with known_prefect() as prefect:
        if prefect is None:
            raise UsageError("no Prefect server: set PREFECT_API_URL to one that stays, or start `whitney up` here")
        if not is_up(prefect.api_url):
            raise UsageError(
                f"Prefect at {prefect.shown} does not answer: start it, or unset PREFECT_API_URL for `whitney up`"
            )
        names = []
        for change in changes(entries, wishes):
            print(change.line(dry_run=wishes.dry_run), flush=True)
            names += [change.name] if change.kind == "deployment" and change.name != REAPER else []
        print(
            f"Runs work in {Path.cwd()}, on whatever machine has a worker of the pool (`whitney up`, `whitney worker`)"
        )
        for line in (*when.cautions(), *([] if wishes.dry_run else _how_to_run(names[0], prefect.shown))):
            print(line)
    return 0


def _how_to_run(name: str, api_url: str) -> Iterator[str]:
    from prefect.settings import PREFECT_UI_URL

    page = without_userinfo(PREFECT_UI_URL.value() or api_url.removesuffix("/api"))
    yield f"To run one now, press Run at {page}/deployments; or, in a terminal,"
    if "PREFECT_API_URL" not in os.environ:
        yield f"  export PREFECT_API_URL={api_url}"
    yield f"  prefect deployment run '{name}'"


def _entries(path: Path | None, overrides: tuple[str, ...], when: When) -> list[Entry]:
    """What is to be deployed; checked before a server is asked for anything."""
    from deployments.prefect_file import shipped

    if path is not None:
        from cli.deploy_own import own_entry

        return [own_entry(path, overrides, when)]
    if given := [*when.given(), *(["--set"] if overrides else [])]:
        raise UsageError(f"{', '.join(given)}: only with a configuration, as in `whitney deploy mine.toml --name mine`")
    return shipped()
