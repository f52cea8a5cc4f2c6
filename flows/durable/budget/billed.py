"""What the endpoint has billed. Where it does not say so, no limit can be held: that is no zero."""

from __future__ import annotations

from collections.abc import Iterable

from flows.config import ConfigError
from tasks.lineage import summed
from whitney.types import Run, RunUsage, Session


def billed(sessions: Iterable[Session]) -> RunUsage:
    """What the runs of some sessions were billed for.

    Raises:
        ConfigError: the endpoint does not say.
    """
    return summed(_usage(run) for session in sessions for run in session.runs)


def _usage(run: Run) -> RunUsage:
    said = run.usage.model_fields_set
    if "operations" not in said or (run.usage.operations and len(said) == 1):  # absent, empty, or without tokens
        raise ConfigError(
            f"budget: limits need an endpoint that says what was billed, and this one does not, of run {run.run_id} "
            "(usage: operations by kind, and tokens): leave the limits out"
        )
    return run.usage
