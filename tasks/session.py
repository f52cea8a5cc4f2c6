"""The life of a session and its run, one Prefect task a step. Never cached: a cached session is a dead session."""

from __future__ import annotations

from prefect import task
from prefect.cache_policies import NO_CACHE

from whitney.client import WhitneyClient
from whitney.types import CreateRun, Session


@task(task_run_name="create_session", cache_policy=NO_CACHE, persist_result=False, retries=0)
async def create_session(client: WhitneyClient, create_key: str, labels: dict[str, str]) -> Session:
    """Open a session; labels are on it before anything is billed, so that hooks and the reaper can find it."""
    return await client.create_session(create_key=create_key, labels=labels)


@task(task_run_name="create_run {name}", cache_policy=NO_CACHE, persist_result=False, retries=0)
async def create_run(client: WhitneyClient, session_id: str, request: CreateRun, name: str) -> str:
    """Create a run under a name for people ("policy", "teacher"): fresh, or restored from a state or an adapter."""
    return (await client.create_run(session_id, request)).run_id


@task(task_run_name="finish_run {name}", cache_policy=NO_CACHE, persist_result=False, retries=0)
async def finish_run(client: WhitneyClient, run_id: str, name: str) -> None:
    """Ask the run to end once its queue is empty."""
    await client.finish(run_id)


@task(task_run_name="wait_terminal {name}", cache_policy=NO_CACHE, persist_result=False, retries=0)
async def wait_terminal(client: WhitneyClient, run_id: str, name: str, timeout_s: float = 300.0) -> str:
    """Wait until the run is finished, cancelled or failed; returns which."""
    return (await client.wait_terminal(run_id, timeout_s=timeout_s)).status


@task(task_run_name="close_session", cache_policy=NO_CACHE, persist_result=False, retries=0)
async def close_session(client: WhitneyClient, session_id: str) -> None:
    """Close a session whose runs are terminal."""
    await client.close_session(session_id)
