"""Labels a flow puts on its session before anything is billed, so that hooks and the reaper can find it."""

from __future__ import annotations

from collections.abc import Mapping

FLOW_RUN = "whitney.flow_run"
"""Id of the training flow's run that owns the session: the one whose hook closes it, nested or not."""

ROOT_FLOW_RUN = "whitney.root_flow_run"
"""Id of the top-level flow run it belongs to; the same, unless somebody's own flow called the training flow."""

ATTEMPT = "whitney.attempt"
"""The owner's run count: 1, and one more with each Retry."""

ROOT_ATTEMPT = "whitney.root_attempt"
"""The top-level flow run's run count. A stage that is retried with its pipeline need not have been in every attempt."""

PROJECT = "whitney.project"
"""The project whose limits by month it counts towards (`[budget] project`)."""

CREATE_KEY = "whitney.create_key"
"""The create_key of the session itself."""

SLOTS = "whitney.slots"
"""Id of the lease under which its slots of a concurrency limit are held: they come back when the session is closed."""

LONGEST_ATTEMPT = 9
"""Digits."""


PROCESS = "whitney.process"
"""Label of a flow run: the create_key of the newest process that has begun on it. Two that begin in the same moment are
told the same run count by Prefect, so the count alone does not say who gives way."""

HAS_STAGES = "whitney.has_stages"
"""Label of a flow run whose subflows are stages: where it is a stage itself, a Retry goes on with it."""


def attempt_of(labels: Mapping[str, str], key: str = ATTEMPT) -> int:
    """The attempt that opened a session, the owner's or the root's; one without a readable label is of the first."""
    label = labels.get(key, "1")
    # Anybody may label a session: thousands of digits are no number to Python, and must not stop whoever closes others.
    return int(label) if label.isdecimal() and len(label) <= LONGEST_ATTEMPT else 1


STOPPED_WITH_PIPELINE = "whitney.stopped_with_pipeline"
"""Label of a stage's flow run: "yes" where a limit of its pipeline has stopped it, so that a Retry goes on with it."""
