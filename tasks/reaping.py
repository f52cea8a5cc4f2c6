"""Sessions that nobody is left to close: found by their label, judged, closed.

Only sessions with the label `whitney.flow_run` are looked at; whatever else lives on the endpoint is somebody else's.
The first row that holds decides:

| what is known                                                  | the session |
|---|---|
| it has been silent for longer than the bound                   | is closed: its process is gone, or hangs |
| a later attempt of its flow run has begun                      | is closed: an attempt opens sessions of its own |
| its flow run is Completed, Failed, Crashed or Cancelled        | is closed |
| SCHEDULED or PENDING, and the session does not say it beats    | is closed: the attempt that opened it is over |
| SCHEDULED or PENDING (AwaitingRetry, Late, …), and it beats    | is spared: Retry was pressed on a run at work |
| CANCELLING for longer than the bound                           | is closed: the runner that was to obey is gone |
| its top-level flow run has ended, or begun a later attempt     | is closed: a stage goes with its pipeline |
| CANCELLING, RUNNING, PAUSED                                    | is spared: its hook, or its flow, will close it |
| its flow run is not known to this Prefect server               | is spared, and reported |
| Prefect cannot be asked                                        | is spared |

SCHEDULED and PENDING: a flow run has no session before its first attempt runs, and should be scheduled again only when
an attempt has ended. But Retry can be forced on a run at work; a runner then waits for the attempt it has (seen with
Prefect 3.9.1), which beats. One that has ended is silent soon. PAUSED: a flow that waits in its process beats on, one
that was suspended has closed its session on the way out, or is silent. A stage of a pipeline whose process was killed
is RUNNING for ever, as far as Prefect knows: its pipeline's state tells.

A flow run that Prefect does not know may be gone, but as well be another Prefect server's, or that of a laptop's
temporary one, on the same endpoint: to close its session would end a healthy run, so its beat is believed.

The sessions are listed before Prefect is asked, never after: so an answer "Failed" cannot be older than the session of
a Retry that has begun meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
from prefect.client.schemas.objects import FlowRun, StateType

from tasks.markdown import cell
from tasks.prefect_server import PAGE
from tasks.slots import free_slots
from whitney.heartbeat import pause_s
from whitney.labels import FLOW_RUN, ROOT_ATTEMPT, ROOT_FLOW_RUN, attempt_of
from whitney.lifecycle import LifecycleClient, Verdict
from whitney.settings import WhitneySettings
from whitney.types import Session

SILENCE_S = 300.0
"""The silence after which a session is closed; a flow beats at least every 60 s."""

DEADLINE_S = 120.0
"""How long closing may take: well under the pause between two calls of the reaper."""

CLOSED, LEFT_OPEN, WOULD_CLOSE, SPARED = "closed", "left open", "would be closed", "spared"

LISTING_S = 30.0

Owners = Mapping[str, FlowRun]
"""Flow runs by their id; those that Prefect does not know are not in it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """An open session, whether it is to be closed and why; then how that went (None: spared, or a dry run)."""

    session: Session
    doomed: bool
    why: str
    verdict: Verdict | None = None

    @property
    def flow_run(self) -> str:
        """Id of the flow run that its label names."""
        return self.session.labels[FLOW_RUN]

    @property
    def outcome(self) -> str:
        """In a word or two."""
        if not self.doomed:
            return SPARED
        if self.verdict is None:
            return WOULD_CLOSE
        return CLOSED if self.verdict.closed else LEFT_OPEN

    @property
    def said(self) -> str:
        """The verdict in words; empty where there is none."""
        return "" if self.verdict is None else self.verdict.message

    @property
    def sentence(self) -> str:
        """A line for a log: session, owner, why, and the verdict where there is one."""
        line = f"session {self.session.session_id} of flow run {self.flow_run}: {self.why}; {self.outcome}"
        return f"{line}: {self.said}" if self.said else line


@dataclass(frozen=True, slots=True)
class Reaped:
    """What a call of the reaper has found and done; `notes` say what it could not know.

    `freed` are the leases of slots that came back with what was closed.
    """

    findings: list[Finding]
    notes: list[str] = field(default_factory=list)
    freed: list[str] = field(default_factory=list)

    @property
    def left_open(self) -> list[Finding]:
        """What should have been closed and could not be: it is still billing."""
        return [one for one in self.findings if one.verdict is not None and not one.verdict.closed]

    def markdown(self) -> str:
        """The report, as Prefect shows it."""
        rows = [
            " | ".join(["", one.session.session_id, *map(cell, (one.flow_run, one.outcome, one.why, one.said)), ""])
            for one in self.findings
        ]
        head = ["| session | flow run | outcome | why | verdict |", "|---|---|---|---|---|"]
        freed = [f"Slots came back, of {len(self.freed)} runs."] if self.freed else []
        return "\n".join([*(head + rows if rows else ["No open session of a flow run."]), "", *self.notes, *freed])


def reap_sessions(
    settings: WhitneySettings,
    owners_of: Callable[[set[str]], Owners] | None,
    *,
    silence_s: float = SILENCE_S,
    deadline_s: float = DEADLINE_S,
    dry_run: bool = False,
) -> Reaped:
    """Judge every open session of a flow run, and close those that nobody is left to close.

    Args:
        settings: the endpoint.
        owners_of: flow runs by id, as `ask_prefect` does; None where there is no Prefect to ask.
        silence_s: the bound, in seconds; a session that beats more slowly than that has twice its own pause.
        deadline_s: how long closing may take, in seconds.
        dry_run: only judge.

    Raises:
        WhitneyError: the sessions could not be listed, so that any may be open.
    """
    with LifecycleClient(settings, deadline_s=LISTING_S) as client:
        sessions = [session for session in client.open_sessions() if session.labels.get(FLOW_RUN)]
    owners, notes = _owners(sessions, owners_of)
    if sessions and all(session.heartbeat_age_s is None for session in sessions):
        notes.append("This endpoint does not say how long a session has been silent: none is closed for silence.")
    if (floor := max((_bound_s(session, silence_s) for session in sessions), default=silence_s)) > silence_s:
        notes.append(
            f"A silence of {silence_s:g} s is less than two pauses between beats: sessions get up to {floor:g} s."
        )
    findings = [judge(session, owners, silence_s=silence_s) for session in sessions]
    if dry_run:
        return Reaped(findings, notes)
    with LifecycleClient(settings, deadline_s=deadline_s) as client:
        verdicts = client.end_all([finding.session for finding in findings if finding.doomed])
    by_id = {verdict.session_id: verdict for verdict in verdicts}
    findings = [replace(one, verdict=by_id.get(one.session.session_id)) for one in findings]
    # Without a Prefect that can be asked there is nowhere to give slots back: their leases end by themselves.
    return Reaped(findings, notes, [] if owners is None else _free_slots(findings))


def _free_slots(findings: list[Finding]) -> list[str]:
    closed = [one for one in findings if one.outcome == CLOSED]
    return free_slots(
        (one.session.labels for one in closed),
        still_open=[one.session.labels for one in findings if one not in closed],
    )


def judge(session: Session, owners: Owners | None, *, silence_s: float) -> Finding:
    """Whether one session is to be closed, by the table above. `owners` None: Prefect cannot be asked."""
    bound, age = _bound_s(session, silence_s), session.heartbeat_age_s
    if age is not None and age > bound:
        return Finding(session, True, f"it has been silent for {age:.0f} s, of {bound:g} s")
    if owners is None:
        return Finding(session, False, f"Prefect was not asked; {_beats(session, bound)}")
    finding = _judge_by_owner(session, owners.get(session.labels[FLOW_RUN]), bound)
    return finding if finding.doomed else _judge_by_root(finding, owners.get(session.labels.get(ROOT_FLOW_RUN, "")))


def _judge_by_root(finding: Finding, root: FlowRun | None) -> Finding:
    """The same of a session whose own flow run would have it spared, by the one on top."""
    if root is None or root.state is None or ROOT_ATTEMPT not in finding.session.labels:
        return finding
    if root.run_count > (attempt := attempt_of(finding.session.labels, ROOT_ATTEMPT)):
        why = f"it is of attempt {attempt} of its top-level flow run, and attempt {root.run_count} has begun"
        return Finding(finding.session, True, why)
    if root.state.is_final():
        return Finding(finding.session, True, f"its top-level flow run is {root.state.name or root.state.type.value}")
    return finding


def _judge_by_owner(session: Session, owner: FlowRun | None, bound: float) -> Finding:
    """The same of a session that is not silent."""
    if owner is None or owner.state is None:
        return Finding(session, False, f"its flow run is not known here; {_beats(session, bound)}")
    attempt, name = attempt_of(session.labels), owner.state.name or owner.state.type.value
    if owner.run_count > attempt:
        return Finding(session, True, f"it is of attempt {attempt}, and attempt {owner.run_count} has begun")
    if owner.state.is_final():
        return Finding(session, True, f"its flow run is {name}")
    if owner.state.type in (StateType.SCHEDULED, StateType.PENDING):
        return Finding(session, session.heartbeat_age_s is None, f"its flow run is {name}; {_beats(session, bound)}")
    if owner.state.type == StateType.CANCELLING:
        since = (datetime.now(UTC) - owner.state.timestamp).total_seconds()
        return Finding(session, since > bound, f"its flow run has been {name} for {since:.0f} s, of {bound:g} s")
    return Finding(session, False, f"its flow run is {name}; {_beats(session, bound)}")


def _beats(session: Session, bound: float) -> str:
    if session.heartbeat_age_s is None:
        return "nothing says that it is silent"
    return f"last beat {session.heartbeat_age_s:.0f} s ago, of {bound:g} s"


def ask_prefect(flow_run_ids: Iterable[str]) -> Owners:
    """The flow runs of those ids, from the Prefect API that the settings name."""
    ids = sorted(filter(None, map(_uuid, flow_run_ids)))
    found: dict[str, FlowRun] = {}
    with get_client(sync_client=True) as api:
        for start in range(0, len(ids), PAGE):
            page = FlowRunFilter(id=FlowRunFilterId(any_=ids[start : start + PAGE]))
            runs = api.read_flow_runs(flow_run_filter=page, limit=PAGE)
            found |= {str(run.id): run for run in runs}
    return found


def _owners(sessions: list[Session], owners_of: Callable[[set[str]], Owners] | None) -> tuple[Owners | None, list[str]]:
    """Flow runs by id, and what is to be said where they are not known."""
    if owners_of is None:
        return None, ["No Prefect API is configured: sessions are judged by their silence alone."]
    if not sessions:
        return {}, []
    try:
        labels = [session.labels for session in sessions]
        return owners_of({one[key] for one in labels for key in (FLOW_RUN, ROOT_FLOW_RUN) if one.get(key)}), []
    except Exception as error:  # whatever is wrong with Prefect, what is silent must still be closed
        return None, [f"Prefect cannot be asked ({type(error).__name__}): sessions are judged by their silence alone."]


def _bound_s(session: Session, silence_s: float) -> float:
    """The silence that ends a session. Shorter than the pause between two beats it would end healthy ones."""
    return max(silence_s, 2 * pause_s(session.ttl_s))


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:  # a label that somebody else has made: no flow run of Prefect's
        return None
