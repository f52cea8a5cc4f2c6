"""The reaper: where a flow and its runner die together no hook runs, and this closes what they left open."""

# Annotations are read by Prefect, so they are no strings here: see flows/lifecycle.py.
import asyncio
from typing import Annotated

from prefect import flow
from prefect.artifacts import acreate_markdown_artifact
from prefect.logging import get_run_logger
from pydantic import Field

from tasks.credentials import settings_for
from tasks.reaping import CLOSED, DEADLINE_S, SILENCE_S, SPARED, WOULD_CLOSE, Reaped, ask_prefect, reap_sessions
from tasks.verdicts import tell_left_open

ARTIFACT = "whitney-reap"
Seconds = Annotated[float, Field(gt=0)]


class StillOpenError(Exception):
    """Sessions that should be closed could not be; the message names them. They are still billing."""


@flow(name="reap", retries=0, persist_result=False)
async def reap(
    silence_s: Seconds = SILENCE_S,
    deadline_s: Seconds = DEADLINE_S,
    dry_run: bool = False,
    credentials_block: str | None = None,
) -> dict[str, list[str]]:
    """Close the sessions of flow runs that have ended, or gone silent; spare the others. Session ids by outcome.

    The slots of a concurrency limit that a closed session stood for come back with it.

    What is closed and what is spared: the table in `tasks/reaping.py`. A session is closed at the latest one interval
    of the schedule and `silence_s` after its flow and its runner have died together (defaults: 5 minutes each).

    Args:
        silence_s: seconds without a heartbeat after which a session is closed, whatever its flow run is.
        deadline_s: how long closing may take, in seconds.
        dry_run: say what would be closed, and close nothing.
        credentials_block: name of the Whitney Credentials block; without one, what the environment names.

    Raises:
        StillOpenError: not every session that should be closed could be; the others are closed.
        WhitneyError: the endpoint cannot be asked which sessions are open.
    """
    settings = await asyncio.to_thread(settings_for, credentials_block)
    reaped = await asyncio.to_thread(
        reap_sessions, settings, ask_prefect, silence_s=silence_s, deadline_s=deadline_s, dry_run=dry_run
    )
    _log(reaped)
    await acreate_markdown_artifact(
        reaped.markdown(), key=ARTIFACT, description="Open sessions of flow runs: what was closed, what was spared"
    )
    if reaped.left_open:
        for one in reaped.left_open:
            tell_left_open(one.flow_run, one.session.session_id, one.said)
        left = ", ".join(one.session.session_id for one in reaped.left_open)
        raise StillOpenError(f"could not be closed and is still billing: {left}")
    return {
        outcome: [one.session.session_id for one in reaped.findings if one.outcome == outcome]
        for outcome in (CLOSED, WOULD_CLOSE, SPARED)
    }


def _log(reaped: Reaped) -> None:
    logger = get_run_logger()
    for note in reaped.notes:
        logger.warning(note)
    if not reaped.findings:
        logger.info("no open session of a flow run")
    left = {one.session.session_id for one in reaped.left_open}
    if reaped.freed:
        logger.info("slots came back, of %d runs", len(reaped.freed))
    for one in reaped.findings:
        (logger.error if one.session.session_id in left else logger.info)(one.sentence)
