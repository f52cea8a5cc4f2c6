"""Deployments as they are to be, against those that the Prefect server has: only a difference is sent.

Two things are kept as somebody has set them on the server, because an entry only says how they begin: whether a
schedule is active, and which credentials block is used. So is whatever an entry does not say.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import DeploymentScheduleCreate
from prefect.client.schemas.objects import ConcurrencyOptions, DeploymentSchedule
from prefect.client.schemas.responses import DeploymentResponse
from prefect.client.schemas.schedules import CronSchedule, IntervalSchedule
from prefect.exceptions import ObjectNotFound
from prefect.flows import Flow, load_flow_from_entrypoint
from prefect.utilities.callables import parameter_schema

from deployments.changes import Change
from deployments.prefect_file import Entry, Overlap

CREDENTIALS = "credentials_block"
ENVIRONMENT = "none"
"""In place of a block's name: the worker's environment says where Whitney is."""


def register(
    api: SyncPrefectClient,
    entry: Entry,
    *,
    folder: Path,
    activate: bool = False,
    credentials: str | None = None,
    dry_run: bool = False,
) -> Change:
    """Create a deployment, or change what differs.

    Args:
        api: the Prefect server.
        entry: what is to be.
        folder: where its runs work: relative paths of its parameters begin there.
        activate: switch every schedule on; else those that are on stay on.
        credentials: name of the credentials block for its runs, or ENVIRONMENT; else as it is.
        dry_run: only say what would be done.

    Raises:
        ValueError: the flow does not take these parameters.
    """
    flow: Flow[..., Any] = load_flow_from_entrypoint(entry.entrypoint)
    name = f"{flow.name}/{entry.name}"
    there = find(api, name)
    parameters = entry.parameters
    block = credentials or (there and _credentials_of(there.parameters))
    if block and block != ENVIRONMENT:
        parameters = _with_credentials(parameters, block, flow)
    flow.validate_parameters(parameters)
    schedules = _schedules(entry, there, activate=activate)
    wanted = _wanted(entry, flow, folder) | {"parameters": parameters, "schedules": schedules}
    if entry.concurrency_limit is None and there is not None:  # as it is
        wanted["concurrency_options"] = there.concurrency_options
    about = tuple(map(_about, schedules))
    if there is None:
        change = Change("deployment", name, "created", about)
    elif differing := _differing(wanted, there):
        change = Change("deployment", name, "changed", (*differing, *about))
    else:
        return Change("deployment", name, "unchanged", about)
    if not dry_run:
        flow_id = api.create_flow_from_name(flow.name)
        api.create_deployment(flow_id, entry.name, version=flow.version, **wanted)  # a name that is there: changes it
    return change


def find(api: SyncPrefectClient, name: str) -> DeploymentResponse | None:
    """A deployment by "flow/name"; None where there is none."""
    try:
        return api.read_deployment_by_name(name)
    except ObjectNotFound:
        return None


def _schedules(entry: Entry, there: DeploymentResponse | None, *, activate: bool) -> list[DeploymentScheduleCreate]:
    """What the entry says, else what is there; active is what was active, what begins so, and with `activate` all."""
    former = there.schedules if there else []
    active = {schedule.slug for schedule in former if schedule.active}
    if entry.schedules is None:
        kept = {"schedule", "parameters", "max_scheduled_runs", "slug"}
        wanted = [DeploymentScheduleCreate(**{name: getattr(one, name) for name in kept}) for one in former]
    else:
        wanted = [schedule.schedule() for schedule in entry.schedules]
        active |= {schedule.slug for schedule in entry.schedules if schedule.active}
    return [one.model_copy(update={"active": activate or one.slug in active}) for one in wanted]


def _credentials_of(parameters: Mapping[str, Any]) -> str | None:
    block: str | None = parameters.get(CREDENTIALS) or (parameters.get("config") or {}).get(CREDENTIALS)
    return block


def _with_credentials(parameters: dict[str, Any], block: str, flow: Flow[..., Any]) -> dict[str, Any]:
    if "config" in parameters:
        return parameters | {"config": {CREDENTIALS: block} | parameters["config"]}
    return {CREDENTIALS: block} | parameters if CREDENTIALS in parameter_schema(flow).properties else parameters


def _wanted(entry: Entry, flow: Flow[..., Any], folder: Path) -> dict[str, Any]:
    """What `prefect deploy` would send for this entry, run in `folder`; but for the version, which is only shown."""
    overlap = entry.concurrency_limit or Overlap()
    return {
        "entrypoint": entry.entrypoint,
        "description": entry.description,
        "tags": entry.tags,
        "work_pool_name": entry.work_pool.name,
        "job_variables": entry.work_pool.job_variables,
        "pull_steps": [{"prefect.deployments.steps.set_working_directory": {"directory": str(folder)}}],
        "parameter_openapi_schema": parameter_schema(flow).model_dump(exclude_unset=True),
        "enforce_parameter_schema": True,
        "concurrency_limit": overlap.limit,
        "concurrency_options": ConcurrencyOptions(collision_strategy=overlap.collision_strategy),
    }


def _differing(wanted: Mapping[str, Any], there: DeploymentResponse) -> list[str]:
    """The fields in which the server has something else."""
    limit = there.global_concurrency_limit
    odd = {"concurrency_limit": limit and limit.limit, "schedules": sorted(map(_told, there.schedules))}
    asked = dict(wanted) | {"schedules": sorted(map(_told, wanted["schedules"]))}
    return [
        field
        for field, value in asked.items()
        if value != (odd[field] if field in odd else getattr(there, field))  # the rest have the same name
    ]


def _told(entry: DeploymentScheduleCreate | DeploymentSchedule) -> tuple[str, bool, str]:
    """Of a schedule what somebody can set; an interval's anchor is the moment of its making."""
    when = entry.schedule.model_dump(mode="json", exclude={"anchor_date"})
    return entry.slug or "", entry.active, json.dumps(when, sort_keys=True)


def _about(entry: DeploymentScheduleCreate) -> str:
    """In words, for the terminal."""
    match entry.schedule:
        case IntervalSchedule() as when:
            said = f"every {when.interval.total_seconds():g} s"
        case CronSchedule() as when:
            said = f"{when.cron} {when.timezone or 'UTC'}"
        case when:  # only the UI makes others
            said = type(when).__name__
    return f"{said}, {'active' if entry.active else 'inactive'}"
