"""When a deployment of the user's makes runs, as the command line says it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from cli.failures import UsageError

if TYPE_CHECKING:
    from deployments.prefect_file import Overlap as OverlapEntry
    from deployments.prefect_file import ScheduleEntry

Overlap = Literal["wait", "skip"]
STRATEGIES = {"wait": "ENQUEUE", "skip": "CANCEL_NEW"}


@dataclass(frozen=True, slots=True)
class When:
    """The options of `whitney deploy CONFIG` that are about the deployment rather than about what is trained."""

    name: str | None
    cron: str | None
    timezone: str | None
    interval: float | None
    overlap: Overlap | None

    def given(self) -> list[str]:
        """Those that were given."""
        return [f"--{option}" for option in self.__slots__ if getattr(self, option) is not None]

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
                slug="own", active=False, cron=self.cron, interval=self.interval, timezone=self.timezone
            )
            entry.schedule()
        except ValidationError as error:
            issue = error.errors(include_url=False)[0]
            option = str(issue["loc"][-1])
            raise UsageError(f"--{option} {getattr(self, option)!r}: {_said(issue['msg'])}") from None
        return [entry]

    def policy(self) -> OverlapEntry | None:
        """What becomes of a run that is due while another is at work; None: as it is."""
        if self.overlap is None:
            return None
        from deployments.prefect_file import Overlap as OverlapEntry

        return OverlapEntry.model_validate({"collision_strategy": STRATEGIES[self.overlap]})


def _said(message: str) -> str:
    """Pydantic's words without its preface."""
    return message.removeprefix("Value error, ").strip()
