"""What a `whitney up` that was killed has left: told by the fact that its gateway, or its Prefect server, is gone.

Whatever they had at work is lost: it is ended here, at once, instead of by silence and minutes later.
"""

from __future__ import annotations

from cli.run_data import PrefectAt, lives
from cli.terminal import Say
from deployments.names import WORK_POOL
from whitney.settings import WhitneySettings

CLOSING_S = 20.0
WORDS = "`whitney up` was killed, or this machine stopped, while the run was at work; Retry goes on with it"


def close_sessions(gateway: WhitneySettings, prefect: PrefectAt, say: Say) -> None:
    """Close what is open on a gateway that has just been started: no process holds its weights any more.

    The slots that the sessions have taken come back.
    """
    from prefect.settings import PREFECT_API_URL, temporary_settings

    from tasks.slots import free_slots
    from whitney.errors import WhitneyError
    from whitney.lifecycle import LifecycleClient

    try:
        with LifecycleClient(gateway, deadline_s=CLOSING_S) as client:
            verdicts = client.end_all(client.open_sessions())
    except WhitneyError as error:
        say(f"Warning: sessions that were left open could not be looked for ({error}); `whitney reap` does it")
        return
    for verdict in verdicts:
        say(f"Left open by a gateway that was killed: {verdict.message}")
    with temporary_settings({PREFECT_API_URL: prefect.api_url}):
        free_slots(
            (verdict.labels for verdict in verdicts if verdict.closed),
            still_open=[verdict.labels for verdict in verdicts if not verdict.closed],
        )


def crash_flow_runs(prefect: PrefectAt, say: Say) -> None:
    """Say of flow runs that are at work on a server that has just been started, and have no process, that they crashed.

    Else they count as running for ever, and a deployment that allows one run at once never runs again.
    """
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter, WorkPoolFilter
    from prefect.settings import PREFECT_API_URL, temporary_settings
    from prefect.states import Crashed

    at_work = FlowRunFilter.model_validate(
        {"state": {"type": {"any_": ["RUNNING", "PENDING", "CANCELLING"]}}, "deployment_id": {"is_null_": False}}
    )
    pool = WorkPoolFilter.model_validate({"name": {"any_": [WORK_POOL]}})
    with temporary_settings({PREFECT_API_URL: prefect.api_url}), get_client(sync_client=True) as api:
        for run in api.read_flow_runs(flow_run_filter=at_work, work_pool_filter=pool):
            if not _has_a_process(run.infrastructure_pid):
                api.set_flow_run_state(run.id, Crashed(message=WORDS), force=True)
                say(f"Flow run {run.name!r} was at work when `whitney up` was killed: Prefect shows it as crashed")


def _has_a_process(pid: str | None) -> bool:
    return pid is not None and pid.isdecimal() and lives(int(pid))
