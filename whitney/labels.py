"""Labels a flow puts on its session before anything is billed, so that hooks and the reaper can find it."""

ROOT_FLOW_RUN = "whitney.flow_run"
"""Id of the top-level flow run that owns the session."""

ATTEMPT = "whitney.attempt"
"""The flow run's run count: 1, and one more with each Retry."""

CREATE_KEY = "whitney.create_key"
"""The create_key of the session itself."""
