"""`whitney deploy`: deployments, and what they need, on a Prefect server; run again, it changes only what differs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from cli.failures import UsageError
from cli.schedules import Overlap, When

if TYPE_CHECKING:
    from deployments.prefect_file import Entry


def deploy(
    config: Path | None = None,
    *,
    name: str | None = None,
    overrides: Annotated[tuple[str, ...], Parameter(name="--set", negative="")] = (),
    cron: str | None = None,
    timezone: str | None = None,
    interval: float | None = None,
    overlap: Overlap | None = None,
    activate: Annotated[bool, Parameter(negative="")] = False,
    sessions: int | None = None,
    results: Path | None = None,
    credentials: str | None = None,
    notify: str | None = None,
    dry_run: Annotated[bool, Parameter(negative="")] = False,
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
    name
        Name of its deployment, which is then ALGORITHM/NAME; default: that of the file.
    overrides
        A field put over the file's, e.g. --set cycles=3; may be repeated.
    cron
        When runs are made, as a cron line: "0 2 * * *" is every night at two.
    timezone
        Of the cron line, e.g. Europe/Berlin; default: UTC.
    interval
        Seconds between two runs, in place of a cron line.
    overlap
        A run that is due while another is at work: wait for it (the default), or skip, which cancels the new one.
    activate
        Switch the schedules on.
    sessions
        How many Whitney sessions may be open at once, over all runs; default: as it is, and 2 at first.
    results
        Folder that all workers share, under the same path, for what a Retry on another one adopts; default: as it is,
        and at first the disk of each worker.
    credentials
        Keep WHITNEY_BASE_URL and WHITNEY_API_KEY on the server, as a block of that name, and have the runs use it;
        none: the runs go by the worker's environment again. Default: as it is.
    notify
        Notification block that alerts go to, TYPE/NAME, e.g. slack-webhook/on-call; it is made in the UI.
    dry_run
        Only say what would be done.
    """
    entries = _entries(config, overrides, When(name, cron, timezone, interval, overlap))
    from cli.deploy_changes import Wishes, changes
    from cli.prefect_server import is_up, known_prefect

    wishes = Wishes(activate, sessions, results, credentials, notify, dry_run)
    with known_prefect() as prefect:
        if prefect is None:
            raise UsageError("no Prefect server: set PREFECT_API_URL to one that stays, or start `whitney up` here")
        if not is_up(prefect.api_url):
            raise UsageError(f"PREFECT_API_URL = {prefect.api_url} does not answer: start it, or `whitney up`")
        for change in changes(entries, wishes):
            print(change.line(dry_run=dry_run), flush=True)
    print(f"Runs work in {Path.cwd()}, on whatever machine a worker of the pool is: `whitney up`, or `whitney worker`")
    return 0


def _entries(path: Path | None, overrides: tuple[str, ...], when: When) -> list[Entry]:
    """What is to be deployed; checked before a server is asked for anything."""
    from deployments.prefect_file import shipped

    if path is not None:
        from cli.deploy_own import own_entry

        return [own_entry(path, overrides, when)]
    if given := [*when.given(), *(["--set"] if overrides else [])]:
        raise UsageError(f"{', '.join(given)}: only with a configuration, as in `whitney deploy mine.toml --name mine`")
    return shipped()
