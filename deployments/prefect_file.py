"""`prefect.yaml` as data: what is to be deployed. Prefect's own `prefect deploy` reads the same file."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from prefect.client.schemas.actions import DeploymentScheduleCreate
from prefect.client.schemas.objects import ConcurrencyLimitStrategy
from prefect.client.schemas.schedules import CronSchedule, IntervalSchedule
from pydantic import BaseModel, ConfigDict, Field

from deployments.names import HEARTBEAT, TAG, WORK_POOL

PREFECT_FILE = Path(__file__).with_name("prefect.yaml")


class Part(BaseModel):
    """One table of the file; what Prefect would pass over unread is a mistake."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Overlap(Part):
    """What becomes of a run that is due while another of its deployment is at work."""

    limit: Literal[1] = 1
    collision_strategy: ConcurrencyLimitStrategy = ConcurrencyLimitStrategy.ENQUEUE


class ScheduleEntry(Part):
    """When runs are made; `active` False: not before somebody switches it on."""

    slug: str
    active: bool
    cron: str | None = None
    interval: Annotated[float, Field(gt=0, le=366 * 24 * 3600)] | None = None
    timezone: str | None = None

    def schedule(self) -> DeploymentScheduleCreate:
        """The same, as Prefect takes it.

        Raises:
            ValueError: a cron line or a time zone that Prefect does not know.
        """
        when = (
            CronSchedule(cron=self.cron, timezone=self.timezone)
            if self.cron is not None
            else IntervalSchedule(interval=timedelta(seconds=self.interval or 0), timezone=self.timezone)
        )
        return DeploymentScheduleCreate(schedule=when, active=self.active, slug=self.slug)


class Pool(Part):
    """The work pool whose workers run it, and what they put over the pool's own job template."""

    name: str = WORK_POOL
    job_variables: dict[str, Any] = {"env": HEARTBEAT}


class Entry(Part):
    """One deployment; without schedules or overlap it keeps those that it has."""

    name: str
    entrypoint: str
    description: str
    tags: list[str] = [TAG]
    work_pool: Pool = Pool()
    parameters: dict[str, Any]
    schedules: list[ScheduleEntry] | None = None
    concurrency_limit: Overlap | None = None


class PrefectFile(Part):
    """The whole file; `definitions` is there for its YAML anchors."""

    definitions: dict[str, Any]
    deployments: list[Entry]


def shipped() -> list[Entry]:
    """What `prefect.yaml` deploys.

    Raises:
        ValueError: the file has been edited into something that cannot be deployed; names the field.
    """
    return PrefectFile.model_validate(yaml.safe_load(PREFECT_FILE.read_text(encoding="utf-8"))).deployments
