"""A pipeline: stages that train one after another, each an algorithm's own flow — SFT, then RL, then distillation."""

# Annotations are read by Prefect, so they are no strings here: see flows/lifecycle.py.
from typing import Any

from prefect.exceptions import FailedRun

import flows
from flows.config.pipeline import PipelineConfig
from flows.durable.termination import sigterm_is_heard
from flows.lifecycle import composite_flow
from flows.stages.begin import begin_pipeline
from flows.stages.outcome import StageOutcome


@composite_flow("pipeline")
async def pipeline(config: PipelineConfig, outcomes: list[StageOutcome] | None = None) -> dict[str, Any]:
    """Train stages one after another, from the weights of earlier ones, each held to its gate; returns the summary.

    A Retry adopts the stages that are finished and goes on with the one that failed, at the block it failed in: see
    `flows.reopening`. Where its budget ends, so does the stage that is at work; a Retry with a higher one goes on.

    Args:
        config: the stages.
        outcomes: recorded outcomes of the first stages, to start after: they are taken as they are, not trained.

    Raises:
        ValueError: a stage cannot run here, or an outcome cannot stand for its stage; nothing has been allocated.
        GateError: a stage is not as good as its gate requires; it stays finished.
        WhitneyError: an operation of a stage failed, or Whitney cannot be reached; no session is left open.
    """
    with sigterm_is_heard():
        async with await begin_pipeline(config, outcomes or []) as chain:
            for stage in chain.stages():
                outcome = chain.recorded(stage)
                if outcome is None:
                    if not await chain.may_begin(stage):
                        break
                    try:
                        summary = await flows.FLOWS[stage.algorithm](chain.config_of(stage))
                    except FailedRun as failed:
                        if not chain.stopped_at_once(failed):
                            raise
                        break
                    outcome = chain.outcome_of(stage, summary)
                    if chain.stopped_within(stage, outcome, summary):
                        break
                await chain.add(stage, outcome)
            return await chain.finish()
