"""`whitney reap`: close sessions that were left open, so that they stop billing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from cli.failures import CommandFailedError, UsageError, interruptible

if TYPE_CHECKING:
    from tasks.reaping import Reaped
    from whitney.lifecycle import LifecycleClient, Verdict
    from whitney.settings import WhitneySettings
    from whitney.types import Session

DEADLINE_S = 60.0


def reap(
    *,
    session: str | None = None,
    flow_run: str | None = None,
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    silence_s: float | None = None,
    deadline_s: float = DEADLINE_S,
) -> int:
    """Close sessions that were left open: cancel their runs, wait until they are terminal, close; status 1 if not all.

    A run closes its own session however it ends. This is for what nothing was left to do: a machine that lost its
    power, an endpoint that did not answer while the run was ending. Saved states stay; slots of a limit come back.

    Without --session and --flow-run it looks at every open session of a flow run, as the deployment `reap` does every
    five minutes: those of runs that have ended, of attempts that a later one has followed, and those that are silent
    are closed; a run that is at work is spared. Without PREFECT_API_URL or `whitney up`, silence alone counts.

    Parameters
    ----------
    session
        Id of the session, as a message COULD NOT CLOSE names it; closed whatever its flow run does.
    flow_run
        Instead: id of a flow run; every open session of its attempts, of a pipeline's stages too, is closed, whatever
        it does.
    dry_run
        Say what would be closed, and close nothing.
    silence_s
        Without the two: seconds without a heartbeat after which a session is closed (300). At least two pauses between
        beats count: 120 s at most, less where the endpoint's TTL makes sessions beat faster.
    deadline_s
        How long to try, in seconds.
    """
    if session is not None and flow_run is not None:
        raise UsageError(
            "name one thing to close: --session ID, or --flow-run ID, or neither for all that is left open"
        )
    named = session is not None or flow_run is not None
    if named and silence_s is not None:
        raise UsageError("--silence-s is for a reap of everything: what is named is closed, silent or not")
    for flag, seconds in (("--deadline-s", deadline_s), ("--silence-s", silence_s)):
        if seconds is not None and not seconds > 0:
            raise UsageError(f"{flag} {seconds:g}: must be above 0, in seconds")
    from whitney.settings import resolve_settings

    settings = resolve_settings()
    with interruptible():
        if named:
            return _close_named(settings, session, flow_run, deadline_s=deadline_s, dry_run=dry_run)
        return _close_left(settings, silence_s, deadline_s=deadline_s, dry_run=dry_run)


def _close_named(
    settings: WhitneySettings, session: str | None, flow_run: str | None, *, deadline_s: float, dry_run: bool
) -> int:
    """Close what was named, without a question; the exit status."""
    from whitney.lifecycle import LifecycleClient

    with LifecycleClient(settings, deadline_s=deadline_s) as client:
        found = _find(client, settings, session, flow_run)
        if not found:
            print(f"flow run {flow_run} has no open session")
        for one in found:
            if one.status == "closed":
                print(f"session {one.session_id} is closed already ({_reason_and_runs(one)})")
            elif dry_run:
                print(f"session {one.session_id} ({one.status}; {_reason_and_runs(one)}) would be closed")
        if dry_run:
            return 0
        verdicts = client.end_all([one for one in found if one.status != "closed"])
    for verdict in verdicts:
        print(verdict.message)
    _free_slots(verdicts)
    return 0 if all(verdict.closed for verdict in verdicts) else 1


def _free_slots(verdicts: list[Verdict]) -> None:
    """Give back what the closed sessions were counted by, where a Prefect server is known; else their leases end."""
    from whitney.labels import SLOTS

    if not any(SLOTS in verdict.labels for verdict in verdicts if verdict.closed):
        return
    from cli.prefect_setup import configure

    configure(verbose=False)
    from cli.prefect_api import known_prefect
    from tasks.slots import free_slots

    with known_prefect() as prefect:
        if prefect is None:
            print("its slots come back within 15 minutes, when their lease ends: no Prefect server is known here")
            return
        open_still = [verdict.labels for verdict in verdicts if not verdict.closed]
        free_slots((verdict.labels for verdict in verdicts if verdict.closed), open_still)


def _reason_and_runs(session: Session) -> str:
    reason = [session.reason] if session.reason else []
    runs = ", ".join(f"run {run.run_id} {run.status}" for run in session.runs) or "no runs"
    return "; ".join([*reason, runs])


def _find(
    client: LifecycleClient, settings: WhitneySettings, session_id: str | None, flow_run_id: str | None
) -> list[Session]:
    """The sessions that were named.

    Raises:
        UsageError: the endpoint knows no such session.
        CommandFailedError: it could not be asked, so that something may still be open.
    """
    from whitney.errors import NotFoundError, WhitneyError
    from whitney.labels import FLOW_RUN, ROOT_FLOW_RUN

    try:
        if session_id is None:
            own, stages = (client.open_sessions((label, str(flow_run_id))) for label in (FLOW_RUN, ROOT_FLOW_RUN))
            return list({session.session_id: session for session in (*own, *stages)}.values())
        return [client.session(session_id)]
    except NotFoundError as error:
        raise UsageError(f"--session {session_id}: {settings.base_url} has no session of that id") from error
    except WhitneyError as error:
        raise CommandFailedError(f"nothing could be closed: {error}") from error


def _close_left(settings: WhitneySettings, silence_s: float | None, *, deadline_s: float, dry_run: bool) -> int:
    """Close what nobody is left to close; the exit status."""
    from cli.prefect_setup import configure

    configure(verbose=False)
    from cli.prefect_api import known_prefect
    from tasks.reaping import SILENCE_S, ask_prefect, reap_sessions
    from whitney.errors import WhitneyError

    try:
        with known_prefect() as prefect:
            reaped = reap_sessions(
                settings,
                ask_prefect if prefect is not None else None,
                silence_s=SILENCE_S if silence_s is None else silence_s,
                deadline_s=deadline_s,
                dry_run=dry_run,
            )
    except WhitneyError as error:
        raise CommandFailedError(f"nothing could be closed: {error}") from error
    _show(reaped)
    return 1 if reaped.left_open else 0


def _show(reaped: Reaped) -> None:
    """One line a session, in columns."""
    for note in reaped.notes:
        print(note)
    if not reaped.findings:
        print("No open session of a flow run.")
        return
    from cli.columns import columns

    rows = [(one.outcome, one.session.session_id, one.flow_run, one.why) for one in reaped.findings]
    print("\n".join(columns(("OUTCOME", "SESSION", "FLOW RUN", "WHY"), rows)))
    for one in reaped.left_open:
        print(one.said)
