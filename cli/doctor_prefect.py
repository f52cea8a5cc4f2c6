"""What `whitney doctor` looks at on a Prefect server: is there one, and is what deployments need there and at work."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import TYPE_CHECKING

from cli.finding import Finding
from deployments.names import REAPER, SESSION_LIMIT, WORK_POOL

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

MISSING = "not there; needed for deployments only, and `whitney deploy` and `whitney up` make what they need"


WAITS = {
    "AwaitingRetry": "a worker, after somebody has pressed Retry",
    "AwaitingConcurrencySlot": "another run of its deployment to end",
}
"""What a run that is due waits for, by its state's name."""

SHOWN = 10
"""Runs that wait, at most."""


def look_at_prefect() -> list[Finding]:
    """The server, and what is on it."""
    from cli.prefect_answers import is_up
    from cli.prefect_api import known_prefect
    from cli.up_notice import RunningUp

    os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
    up = RunningUp.read()
    findings = [Finding("ok", "whitney up", f"at work in this folder, process {up.pid}")] if up else []
    with known_prefect() as prefect:
        if prefect is None:
            advice = "each run starts a temporary one; for deployments and a lasting UI: whitney up"
            return [Finding("warn", "Prefect API", f"none configured: {advice}")]
        if not is_up(prefect.api_url):
            advice = "start it; or `unset PREFECT_API_URL` (in a terminal) and `whitney up`, which starts one"
            return [*findings, Finding("fail", "Prefect API", f"{prefect.shown} does not answer: {advice}")]
        return [*findings, Finding("ok", "Prefect API", prefect.shown), *_on_the_server()]


def _on_the_server() -> Iterator[Finding]:
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError

    with get_client(sync_client=True) as api:
        for subject, look in LOOKS.items():
            try:
                yield look(api)
            except ObjectNotFound:
                yield Finding("warn", subject, MISSING)
            except PrefectHTTPStatusError as error:
                status = error.response.status_code
                if status == HTTPStatus.NOT_FOUND:
                    yield Finding("warn", subject, MISSING)
                else:
                    yield Finding("fail", subject, f"Prefect answers {status}: see the server's log")
        yield from _waiting(api)


def _work_pool(api: SyncPrefectClient) -> Finding:
    pool = api.read_work_pool(WORK_POOL)
    if pool.is_paused:
        advice = f"nothing is started: `prefect work-pool resume {WORK_POOL}`"
        return Finding("warn", "work pool", f"{WORK_POOL} is paused, {advice}")
    return Finding("ok", "work pool", f"{WORK_POOL}, type {pool.type}")


def _worker(api: SyncPrefectClient) -> Finding:
    from prefect.client.schemas.objects import WorkerStatus

    workers = api.read_workers_for_work_pool(WORK_POOL)
    online = [worker.name for worker in workers if worker.status == WorkerStatus.ONLINE]
    if online:
        return Finding("ok", "worker", f"{', '.join(online)} online")
    return Finding("warn", "worker", "none is online, so nothing that is due is run: `whitney up`, or `whitney worker`")


def _reaper(api: SyncPrefectClient) -> Finding:
    from prefect.client.schemas.filters import DeploymentFilter, FlowRunFilter
    from prefect.client.schemas.sorting import FlowRunSort

    reaper = api.read_deployment_by_name(REAPER)
    if reaper.paused or not any(schedule.active for schedule in reaper.schedules):
        return Finding("warn", "reaper", f"its schedule is not active: switch it on on the page of {REAPER}")
    ended = api.read_flow_runs(
        deployment_filter=DeploymentFilter.model_validate({"id": {"any_": [reaper.id]}}),
        flow_run_filter=FlowRunFilter.model_validate({"state": {"type": {"any_": ["COMPLETED", "FAILED", "CRASHED"]}}}),
        sort=FlowRunSort.END_TIME_DESC,
        limit=1,
    )
    if not ended:
        return Finding("ok", "reaper", "deployed; it has not run yet")
    (last,) = ended
    when = f"{last.end_time:%Y-%m-%d %H:%M} UTC" if last.end_time else "lately"
    if last.state is None or not last.state.is_completed():
        return Finding("warn", "reaper", f"its last run, {when}, did not work: {last.state and last.state.message}")
    return Finding("ok", "reaper", f"deployed; its last run, {when}, worked")


def _session_limit(api: SyncPrefectClient) -> Finding:
    limit = api.read_global_concurrency_limit_by_name(SESSION_LIMIT)
    return Finding("ok", "session limit", f"{SESSION_LIMIT}: {limit.limit} at once, {limit.active_slots} taken")


def _waiting(api: SyncPrefectClient) -> Iterator[Finding]:
    """Runs that are neither at work nor at their end, and what each waits for."""
    from prefect.client.schemas.filters import FlowRunFilter
    from prefect.client.schemas.sorting import FlowRunSort

    from cli.prefect_setup import flow_run_page

    states = {"operator": "or_", "type": {"any_": ["PAUSED"]}, "name": {"any_": list(WAITS)}}
    wanted = FlowRunFilter.model_validate({"state": states, "parent_task_run_id": {"is_null_": True}})
    for run in api.read_flow_runs(flow_run_filter=wanted, sort=FlowRunSort.EXPECTED_START_TIME_DESC, limit=SHOWN):
        for_what = WAITS.get(run.state_name or "", "a person: press Resume on its page, which asks")
        yield Finding("warn", "waiting run", f"{run.name} waits for {for_what}; {flow_run_page(str(run.id))}")


LOOKS: dict[str, Callable[[SyncPrefectClient], Finding]] = {
    "work pool": _work_pool,
    "worker": _worker,
    "reaper": _reaper,
    "session limit": _session_limit,
}
