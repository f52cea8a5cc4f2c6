"""`whitney reap`: close a session that was left open, so that it stops billing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.failures import CommandFailedError, UsageError, interruptible

if TYPE_CHECKING:
    from whitney.lifecycle import Verdict
    from whitney.settings import WhitneySettings


def reap(*, session: str | None = None, flow_run: str | None = None, deadline_s: float = 60.0) -> int:
    """Close a session that was left open: cancel its runs, wait until they are terminal, close; status 1 if it cannot.

    A run closes its own session however it ends. This is for what nothing was left to do: a machine that lost its
    power, an endpoint that did not answer while the run was ending. Saved states stay.

    Parameters
    ----------
    session
        Id of the session, as a message COULD NOT CLOSE names it.
    flow_run
        Instead: id of a flow run; every open session of its attempts is closed.
    deadline_s
        How long to try, in seconds.
    """
    if (session is None) == (flow_run is None):
        raise UsageError("name what to close: --session ID, or --flow-run ID")
    if deadline_s <= 0:
        raise UsageError(f"--deadline-s {deadline_s:g}: give it some time, in seconds")
    from whitney.settings import resolve_settings

    with interruptible():
        verdicts = _close(resolve_settings(), session, flow_run, deadline_s)
    for verdict in verdicts:
        print(verdict.message)
    if not verdicts:
        print(f"flow run {flow_run} has no open session")
    return 0 if all(verdict.closed for verdict in verdicts) else 1


def _close(
    settings: WhitneySettings, session_id: str | None, flow_run_id: str | None, deadline_s: float
) -> list[Verdict]:
    """Verdicts on what was found.

    Raises:
        UsageError: the endpoint knows no such session.
        CommandFailedError: it could not be asked, so that something may still be open.
    """
    from whitney.errors import NotFoundError, WhitneyError
    from whitney.labels import FLOW_RUN
    from whitney.lifecycle import LifecycleClient

    with LifecycleClient(settings, deadline_s=deadline_s) as client:
        try:
            if session_id is None:
                return client.end_all(client.open_sessions((FLOW_RUN, str(flow_run_id))))
            return [client.end(client.session(session_id))]
        except NotFoundError as error:
            raise UsageError(f"--session {session_id}: {settings.base_url} has no session of that id") from error
        except WhitneyError as error:
            raise CommandFailedError(f"nothing could be closed: {error}") from error
