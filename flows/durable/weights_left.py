"""Which weights a run that goes on still reads: often not those it began with, which may be gone by then."""

from __future__ import annotations

from algorithms import ALGORITHMS
from flows.checks.prepared import Prepared
from flows.checks.refusals import require_weights
from flows.config import ConfigError, FlowConfig
from flows.durable.lost_states import Left
from whitney.client import WhitneyClient

WAYS_OUT = (
    "Start a new run, from a state that is kept or from the base model. Of a stage of a pipeline: train the stage that "
    'saved it again (`whitney run PIPELINE --from STAGE`), or have this one begin elsewhere (`start_from = "base"`)'
)


async def require_weights_left(client: WhitneyClient, inputs: Prepared, left: Left) -> None:
    """Make sure that what the rest of a run reads is there: a teacher; the initial weights, if they are read again.

    Raises:
        ConfigError: it is not; names the field, why it is needed, and the ways out.
    """
    config = inputs.config
    if left is Left.EXPORTED:
        return
    again = reads_initial_weights(inputs.algorithm, config)
    if left is Left.SAVED and not again:
        own = config.model.model_copy(update={"initial_state_id": None, "initial_artifact_id": None})
        config = config.model_copy(update={"model": own})
    try:
        await require_weights(client, config)
    except ConfigError as error:
        why = "every block reads it" if left is Left.SAVED else "this run has no saved block to go on from"
        raise ConfigError(f"{error}. It is still needed, for {why}. {WAYS_OUT}") from error


def reads_initial_weights(algorithm: str, config: FlowConfig) -> bool:
    """Whether every block needs the weights that the run began with: as its reference, or as its own teacher."""
    runs = config.needs(ALGORITHMS[algorithm]).extra_runs
    return "reference" in runs or ("teacher" in runs and not hasattr(config, "teacher"))
