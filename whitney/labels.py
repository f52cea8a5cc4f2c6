"""Labels a flow puts on its session before anything is billed, so that hooks and the reaper can find it."""

from __future__ import annotations

from collections.abc import Mapping

FLOW_RUN = "whitney.flow_run"
"""Id of the training flow's run that owns the session: the one whose hook closes it, nested or not."""

ROOT_FLOW_RUN = "whitney.root_flow_run"
"""Id of the top-level flow run it belongs to; the same, unless somebody's own flow called the training flow."""

ATTEMPT = "whitney.attempt"
"""The owner's run count: 1, and one more with each Retry."""

CREATE_KEY = "whitney.create_key"
"""The create_key of the session itself."""

LONGEST_ATTEMPT = 9
"""Digits."""


def attempt_of(labels: Mapping[str, str]) -> int:
    """The attempt that opened a session; one without a readable label belongs to the first."""
    label = labels.get(ATTEMPT, "1")
    # Anybody may label a session: thousands of digits are no number to Python, and must not stop whoever closes others.
    return int(label) if label.isdecimal() and len(label) <= LONGEST_ATTEMPT else 1
