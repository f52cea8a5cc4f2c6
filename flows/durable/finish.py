"""The good end of an attempt: the session is closed, then the run's account is drawn up and published."""

from __future__ import annotations

from dataclasses import asdict
from statistics import fmean
from typing import Any

from prefect.logging import get_run_logger

from flows.checks.drift import fingerprint
from flows.durable.attempt import Attempt
from flows.durable.budget.paid import cost_beside_plan, prices_of
from flows.durable.budget.stop import note_stop
from flows.durable.budget.told import budget_told
from flows.durable.delivery import deliver
from flows.durable.lineage import redone_in
from flows.durable.outcome import EvaluationOutcome, ExportOutcome
from flows.durable.plan_kept import planned, planned_completion, planned_cost
from flows.durable.summary import summarize
from flows.durable.telling import warn
from flows.durable.unchanged import remember_fingerprint
from tasks.bill import billed
from tasks.events import emit
from tasks.planned import PARTS
from whitney.errors import WhitneyError
from whitney.labels import FLOW_RUN
from whitney.types import Session


async def finish(attempt: Attempt, adapter: ExportOutcome) -> dict[str, Any]:
    """Close the session, then write and publish the summary."""
    scope = attempt.scope
    await scope.close()
    sessions = await _sessions(attempt)
    others: list[EvaluationOutcome | ExportOutcome] = [*attempt.evaluations, adapter]
    redone = None if sessions is None else redone_in(sessions, attempt.chain, *others).as_json()
    summary = {
        **summarize(attempt.inputs.algorithm, attempt.config, attempt.rows, attempt.evaluations, adapter),
        "run_folder": str(attempt.folder.path),
        "adapter_facts": asdict(adapter.facts) if adapter.facts else None,
        "flow_run_id": scope.flow_run_id,
        "attempt": scope.attempt,
        "stopped": attempt.stopped,
        "budget": await budget_told(attempt),
        "planned": planned(attempt.folder),
        "completion_tokens": _completions(attempt),
        "state_id": attempt.chain[-1].state_id,
        "seconds": attempt.stopwatch.note(),
        "open_sessions": None if sessions is None else sum(session.status == "open" for session in sessions),
        "redone": redone,
    }
    summary["cost"] = _cost(attempt, summary)
    if not summary["operations"].get("optim_step"):
        get_run_logger().warning(  # the terminal says it with the summary
            "no optimizer step was taken, the adapter is as it began: see zero_signal_fraction, dropped/… and "
            "skipped/… in metrics.jsonl"
        )
    attempt.write_blocks()
    attempt.write_measurements()
    await deliver(attempt, adapter, summary)
    attempt.folder.write_summary(summary)
    await attempt.report.publish(summary, attempt.rows)
    await note_stop(attempt)
    if attempt.budget.reached is None:  # else there is something left to do
        await remember_fingerprint(fingerprint(attempt.folder.read_config()))
    emit("finished", **summary)
    return summary


def _cost(attempt: Attempt, summary: dict[str, Any]) -> dict[str, Any] | None:
    bill = None if summary["redone"] is None else {part: billed(summary, part) for part in PARTS}
    planned_for = planned_cost(attempt.folder)
    return cost_beside_plan(prices_of(attempt.config.budget), bill, summary["seconds"], planned_for)


def _completions(attempt: Attempt) -> dict[str, float] | None:
    """How long they were, in tokens, beside what was planned; None where none was sampled."""
    means = [row["completion_tokens_mean"] for row in attempt.rows if "completion_tokens_mean" in row]
    planned_for = planned_completion(attempt.folder)
    return {"mean": fmean(means), "planned": planned_for} if means and planned_for else None


async def _sessions(attempt: Attempt) -> list[Session] | None:
    """The flow run's sessions, of every attempt, open or closed; None when the endpoint does not say."""
    try:
        return await attempt.client.list_sessions(label=(FLOW_RUN, attempt.scope.flow_run_id))
    except WhitneyError as error:  # everything is trained, exported and closed: not worth failing for
        warn(f"cannot tell what was billed, nor whether a session is still open: {error}")
        return None
