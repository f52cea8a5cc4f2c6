"""The options of `whitney deploy`: those of a configuration's deployment, and those of the server."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from cli.failures import UsageError

if TYPE_CHECKING:
    from deployments.prefect_file import Overlap as OverlapEntry
    from deployments.prefect_file import ScheduleEntry

SCHEDULE = "whitney-deploy"
"""What the schedule of a configuration's deployment is called on the server: by who has made it."""
EXAMPLES = {
    "cron": "; minute, hour, day, month and weekday, as in --cron '0 2 * * *', every night at two",
    "timezone": "; for example --timezone Europe/Berlin",
}
Overlap = Literal["wait", "skip"]
SHORT_S = 3600
"""Between two runs: many trainings take longer."""
STRATEGIES = {"wait": "ENQUEUE", "skip": "CANCEL_NEW"}


@dataclass(frozen=True, slots=True)
class When:
    """What is said of the deployment of a configuration, beside what is trained.

    Parameters
    ----------
    name
        Name of its deployment, which is then ALGORITHM/NAME; default: that of the file.
    cron
        When runs are made, as a cron line: "0 2 * * *" is every night at two.
    timezone
        Of the cron line, e.g. Europe/Berlin; default: UTC.
    interval
        Seconds between two runs, in place of a cron line.
    overlap
        A run that is due while another is at work: wait for it (the default), or skip, which cancels the new one.
    """

    name: str | None = None
    cron: str | None = None
    timezone: str | None = None
    interval: float | None = None
    overlap: Overlap | None = None

    def given(self) -> list[str]:
        """Those that were given."""
        return [f"--{field.name}" for field in fields(self) if getattr(self, field.name) is not None]

    def schedules(self) -> list[ScheduleEntry] | None:
        """The schedule that was asked for, inactive: it is --activate that switches on. None: as it is.

        Raises:
            UsageError: options that exclude one another, or a value that Prefect does not take.
        """
        from pydantic import ValidationError

        from deployments.prefect_file import ScheduleEntry

        if self.cron is not None and self.interval is not None:
            raise UsageError("--cron and --interval exclude one another: a schedule is one or the other")
        if self.timezone is not None and self.cron is None:
            raise UsageError(f"--timezone {self.timezone}: only with --cron; an interval has none")
        if self.cron is None and self.interval is None:
            return None
        try:
            entry = ScheduleEntry(
                slug=SCHEDULE, active=False, cron=self.cron, interval=self.interval, timezone=self.timezone
            )
            entry.schedule()
        except ValidationError as error:
            issue = error.errors(include_url=False)[0]
            option = str(issue["loc"][-1])
            raise UsageError(
                f"--{option} {getattr(self, option)!r}: {_said(issue['msg'])}{EXAMPLES.get(option, '')}"
            ) from None
        return [entry]

    def cautions(self) -> Iterator[str]:
        """What a schedule may do that nobody means."""
        if self.interval is not None and self.interval < SHORT_S and self.overlap != "skip":
            yield (
                f"A run is due every {self.interval:g} s, and waits while another is at work. Where one takes longer "
                "than that, runs pile up; --overlap skip cancels what is due meanwhile"
            )

    def policy(self) -> OverlapEntry | None:
        """What becomes of a run that is due while another is at work; None: as it is."""
        if self.overlap is None:
            return None
        from deployments.prefect_file import Overlap as OverlapEntry

        return OverlapEntry.model_validate({"collision_strategy": STRATEGIES[self.overlap]})


@dataclass(frozen=True, slots=True)
class Wishes:
    """What is said of the server.

    Parameters
    ----------
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

    activate: Annotated[bool, Parameter(negative="")] = False
    sessions: int | None = None
    results: Path | None = None
    credentials: str | None = None
    notify: str | None = None
    dry_run: Annotated[bool, Parameter(negative="")] = False


NO_OPTIONS, NO_WISHES = When(), Wishes()


def _said(message: str) -> str:
    """Pydantic's words without its preface."""
    return message.removeprefix("Value error, ").strip()
