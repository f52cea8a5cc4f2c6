"""The gate behind a stage: what is done where it does not hold."""

from __future__ import annotations

import hashlib

from prefect.logging import get_run_logger

from flows.config.pipeline import StageConfig
from flows.durable.telling import warn
from flows.person import ask_person
from flows.stages.outcome import GateOutcome


class GateError(RuntimeError):
    """A stage is not as good as its gate requires. A Retry measures nothing again: it fails at the same gate."""


async def pass_gate(stage: StageConfig, gate: GateOutcome, run: str, *, timeout_s: float) -> None:
    """Go on, or do what the stage's `on_fail` says; `run` is the pipeline's name, for the person who is asked.

    Raises:
        GateError: the gate does not hold, and the pipeline is to stop there.
        DeclinedError, NotAnsweredError, Pause: as `flows.person.ask_person`.
    """
    told = f"gate of stage {stage.name!r}, {gate.require}: {gate.message}"
    if gate.passed:
        get_run_logger().info("%s", told)
    elif gate.on_fail == "continue":
        warn(f"{told}; going on all the same")
    elif gate.on_fail == "pause":
        question = f"**{run}**: {told}.\n\nGo on with the next stage all the same?"
        # A yes is of what was asked: another condition is another question.
        condition = hashlib.sha256(gate.require.encode()).hexdigest()[:8]
        await ask_person(f"gate-{stage.name}-{condition}", question, why=told, timeout_s=timeout_s)
    else:
        raise GateError(
            f"{told}. A Retry comes to the same gate: change `require`, or the stage's configuration and train it "
            f"again with all after it (`whitney run PIPELINE --from {stage.name}`)"
        )
