"""Dynamic sampling (DAPO, arXiv 2503.14476): draw again for groups that are too small or teach nothing.

A subflow of its own, so that every round, and every `sample` it bills, stands in the UI. What is kept and what is
dropped is decided by `algorithms.resampling`; what to do about it is the declared policy of `[resample]`.
"""

from __future__ import annotations

from collections.abc import Sequence

from prefect.logging import get_run_logger

from flows.config import DapoConfig
from flows.durable.cycles import Cycle
from flows.durable.outcome import Row
from flows.lifecycle import inner_flow
from flows.parts.resampling import EXHAUSTED, Resampling
from flows.parts.rollout import Rollouts
from flows.teacher import reference_logprobs
from tasks.run import Opaque
from tasks.scoring import Group


class ResampleExhaustedError(RuntimeError):
    """Rounds or operations are used up, and `resample.on_exhausted` is "fail"."""


async def resample_groups(cycle: Cycle, config: DapoConfig, history: Sequence[Row]) -> Rollouts:
    """The cycle's groups, each large enough and with a signal; fewer, or none, where the policy's caps were reached.

    The place in the data follows from what earlier cycles have drawn, so that a Retry needs no cursor of its own.

    Raises:
        ResampleExhaustedError: caps reached, with `on_exhausted = "fail"`.
    """
    first = sum(int(row.get("prompts_drawn", 0)) for row in history)
    kept: list[Group] = (await resample(cycle, config, first)).value
    if kept and config.kl.coef:
        await reference_logprobs(cycle, kept)
    return Rollouts(cycle, config, kept)


@inner_flow("resample", run_name="resample, cycle {cycle.label}")
async def resample(cycle: Cycle, config: DapoConfig, first_prompt: int) -> Opaque:
    """Round after round until every group is complete or the caps are reached; the groups to train on."""
    state = Resampling(cycle, config, first_prompt)
    while state.rounds <= config.resample.max_rounds and (slots := state.pending()):
        await state.draw(slots)
    missing = sum(not slot.complete for slot in state.slots)
    groups = state.to_train()
    state.record(first_prompt)
    if not missing:
        return Opaque(groups)
    said = (
        f"cycle {cycle.label}: {missing} of {len(state.slots)} groups are incomplete after {state.rounds - 1} rounds "
        f"and {state.operations} operations of resampling"
    )
    on_exhausted = config.resample.on_exhausted
    if on_exhausted == "fail":
        raise ResampleExhaustedError(
            f"{said}; raise resample.max_rounds or resample.max_operations, or set resample.on_exhausted"
        )
    get_run_logger().warning("%s: %s", said, on_exhausted)
    if not groups:
        cycle.metrics[f"skipped/{EXHAUSTED}"] = 1
    return Opaque(groups)
